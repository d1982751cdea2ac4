from linbench.tasks.blocks.explain import join_examples, shorten


def test_long_things_are_told_shortly() -> None:
    assert join_examples(["a", "b"], most=2) == "a; b"
    assert join_examples(["a", "b", "c", "d"], most=2).split("; ") == ["a", "b", "and 2 more"]
    assert join_examples(["a", "b", "c"], most=1, between=" ") == "a and 2 more"
    assert shorten([1, 2, 3, 4], most=2) == "1 2 3 4"
    assert shorten([1, 2, 3, 4, 5], most=2).split(" ") == ["1", "2", "...", "4", "5"]
