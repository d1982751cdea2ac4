"""The lowest room: user errors, validated settings, hashing, files and text. It imports nothing of ours."""
