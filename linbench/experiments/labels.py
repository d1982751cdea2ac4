"""Short labels for cells: the settings in which they differ from others."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from linbench.experiments.cell import Cell

FORM = "form"
_MIXTURE = ("task.test", "task.train")


class Names(NamedTuple):
    """A scheme for naming the cells of a run.

    presets: the tasks whose cells all equal a preset, whose name then stands for its settings. settings: by
    task, the names of the settings in which its cells differ, such as `form` or `model.d_model`; the seed is
    last.
    """

    presets: frozenset[str]
    settings: Mapping[str, tuple[str, ...]]


class Naming:
    """The naming of a run whose cells come bit by bit: only tasks with new cells are looked at again."""

    def __init__(self, but: Collection[str] = ()) -> None:
        """Begin without cells. but: settings that are not to be used. The seed always is."""
        self._but = {*but, "seed"}
        self._tasks: dict[str, _SameTask] = {}
        self._settings: dict[str, tuple[str, ...]] = {}
        self._changed: set[str] = set()
        """Tasks with cells that `names` has not seen."""

    def add(self, cells: Iterable[Cell]) -> None:
        """Take up more cells of the run."""
        for cell in cells:
            task = cell.task_entry.name
            self._changed.add(task)
            self._tasks.setdefault(task, _SameTask()).add(cell)

    @property
    def names(self) -> Names:
        """The fewest settings that distinguish cells of one task, preset and model.

        Mixtures of training and tests are long to read, so they are used only if nothing else will do.
        """
        while self._changed:
            task = self._changed.pop()
            self._settings[task] = *self._tasks[task].distinguishing(self._but), "seed"
        presets = frozenset(name for name, task in self._tasks.items() if None not in task.presets)
        return Names(presets, self._settings)


class _SameTask:
    """The cells of a task by preset and model, and the settings in which those of one model differ at all."""

    def __init__(self) -> None:
        self.presets: set[str | None] = set()
        self._members: dict[tuple[str | None, str], list[dict[str, Any]]] = {}
        self._first: dict[str, dict[str, str]] = {}
        """The settings of the first cell of each model, as texts."""
        self._known: set[str] = set()
        self._varying: set[str] = set()

    def add(self, cell: Cell) -> None:
        settings, label = _named_settings(cell), cell.model.label
        self.presets.add(cell.preset)
        self._members.setdefault((cell.preset, label), []).append(settings)
        texts = {name: str(value) for name, value in settings.items()}
        first = self._first.setdefault(label, texts)
        self._varying |= {name for name in {**first, **texts} if first.get(name) != texts.get(name)}
        self._known |= texts.keys()

    def distinguishing(self, but: Collection[str]) -> list[str]:
        """Return the fewest settings that tell apart cells of one preset and model."""
        groups: dict[tuple[str | None, str], list[dict[str, Any]]] = {}
        for (preset, label), members in self._members.items():
            groups.setdefault((None if None in self.presets else preset, label), []).extend(members)
        constant = self._known - self._varying
        return distinguishing_settings(groups.values(), but={*but, *constant}, last=_MIXTURE)


def naming_scheme(cells: Iterable[Cell], *, but: Collection[str] = ()) -> Names:
    """Return the names of cells that are all known, as `Naming` chooses them."""
    naming = Naming(but)
    naming.add(cells)
    return naming.names


def format_cells(cells: Sequence[Cell], names: Names) -> str:
    """Return the name of a group of cells: `mqar quick deltanet native, model.d_model 64, seed 0 1 2`.

    Args:
        cells: cells of one task and model.
        names: the scheme of the run.
    """
    first = cells[0]
    settings = [_named_settings(cell) for cell in cells]
    values = []
    for name in names.settings.get(first.task_entry.name, ()):
        if name in settings[0]:
            distinct = dict.fromkeys(str(values_of_cell[name]) for values_of_cell in settings)
            words = " ".join(distinct)
            values.append(words if name == FORM else f"{name} {words}")
    task = first.task_entry.name
    preset = f" {first.preset}" if task in names.presets else ""
    return f"{task}{preset} {first.model.label} {', '.join(values)}"


def distinguishing_settings(
    groups: Iterable[Sequence[Mapping[str, Any]]], *, but: Collection[str] = (), last: Sequence[str] = ()
) -> list[str]:
    """Greedily pick settings, in order, that distinguish members of at least one group.

    Args:
        groups: groups of settings by name.
        but: names that are not picked.
        last: names that are tried after all others, wherever they are in the settings.
    """
    groups = list(groups)
    picked: list[str] = []
    # for each member of each group the number of its class: members of one class are not distinguished yet
    classes = [[0] * len(group) for group in groups]
    for name in _names_in(groups, but=but, last=last):
        finer = [_split(numbers, group, name) for numbers, group in zip(classes, groups, strict=True)]
        if finer != classes:
            picked.append(name)
            classes = finer
    return picked


def _names_in(
    groups: Sequence[Sequence[Mapping[str, Any]]], *, but: Collection[str], last: Sequence[str]
) -> list[str]:
    members = chain.from_iterable(groups)
    names = dict.fromkeys(name for name in chain.from_iterable(members) if name not in but)
    first = [name for name in names if name not in last]
    return [*first, *(name for name in last if name in names)]


def _split(classes: Sequence[int], group: Sequence[Mapping[str, Any]], name: str) -> list[int]:
    """Split classes of a group by the values of one setting, and number new ones as they appear."""
    keys = [(number, str(member.get(name))) for number, member in zip(classes, group, strict=True)]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return [numbers[key] for key in keys]


def unique_labels(labels: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Make labels unique by adding, in brackets, the fewest settings that distinguish equal ones."""
    same_label: dict[str, list[Mapping[str, Any]]] = {}
    for label, values in zip(labels, settings, strict=True):
        same_label.setdefault(label, []).append(values)
    picked = {label: distinguishing_settings([members]) for label, members in same_label.items()}
    unique = []
    for label, values in zip(labels, settings, strict=True):
        words = ", ".join(f"{name} {values[name]}" for name in picked[label] if name in values)
        unique.append(f"{label} ({words})" if words else label)
    return unique


def distinguishing_labels(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Describe each of several settings by those that differ, such as `seq_len 64 / kv_pairs 8`."""
    names = dict.fromkeys(chain.from_iterable(settings))
    differ = [name for name in names if len({str(values.get(name)) for values in settings}) > 1]
    return [" / ".join(f"{name} {values[name]}" for name in differ if name in values) for values in settings]


def _named_settings(cell: Cell) -> dict[str, Any]:
    # the form comes first: it tells apart in one word what a handful of settings of the mixer would
    return {FORM: cell.model.form} | all_settings(cell)


def all_settings(cell: Cell) -> dict[str, Any]:
    """Return all settings of a cell by dotted names, and its seed.

    Settings of mixers are included if all layers share them; so are its training mixture and its tests.
    """
    rooms = {"task": cell.task.settings, "model": cell.model.backbone, "protocol": cell.protocol}
    by_name: dict[str, Any] = {}
    for room, settings in rooms.items():
        by_name |= {f"{room}.{name}": value for name, value in settings.model_dump().items()}
    of_mixers = [layer.settings.model_dump() for layer in cell.model.layers]
    for name, value in of_mixers[0].items():
        if all(values.get(name) == value for values in of_mixers):
            by_name[f"model.{name}"] = value
    return by_name | _mixture(cell) | {"seed": cell.seed}


def _mixture(cell: Cell) -> dict[str, str]:
    segments = [
        segment.task.settings.model_dump() | {"examples": segment.examples} for segment in cell.segments
    ]
    tests = [test.settings.model_dump() for test in cell.tests]
    described = describe_mixture(cell.task.settings.model_dump(), segments, tests)
    return {f"task.{name}": words for name, words in described.items()}


def describe_mixture(
    task: Mapping[str, Any],
    train: Sequence[Mapping[str, Any]],
    test: Sequence[Mapping[str, Any]],
    *,
    shown: int | None = None,
) -> dict[str, str]:
    """Describe a training mixture and tests by the settings in which they differ from the task's.

    Args:
        task: the task's settings.
        train: the settings of each segment of the mixture.
        test: the settings of each test.
        shown: segments or tests that are listed; of more, the first and the last. None lists all.

    Returns: texts by the names `train` and `test`; a name is missing if there is nothing to describe.
    """
    described = {}
    for name, variations in (("test", test), ("train", train)):  # tests are the shorter to read
        if variations:
            labels = [label or "the task itself" for label in distinguishing_labels([task, *variations])[1:]]
            few = shown is None or len(labels) <= shown
            described[name] = ", ".join(labels) if few else f"{labels[0]} to {labels[-1]}"
    return described
