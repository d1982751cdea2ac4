"""Suites that take a second."""

TINY = """
about: a test
tasks: [mqar]
models: [deltanet, linear_attention]
seeds: 0-1
set:
  task.seq_len: 16
  task.kv_pairs: 2
  task.vocab_size: 16
  model.d_model: 16
  protocol.batch_size: 4
  protocol.tokens: 640
  protocol.evaluations: 5
  protocol.validation_examples: 8
  protocol.test_examples: 16
"""
