"""Who answers: the backbone, the blocks that mixers share, and one file per variant."""
