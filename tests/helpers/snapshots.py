"""Snapshots of wording as text files, for tests whose point is the whole wording."""

from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode


class TextFile(SingleFileSnapshotExtension):
    """A text file for each snapshot, named after the test."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"
