#!/usr/bin/env bash
# smoke.sh BIN: every kind of output once, with tiny settings, by the linbench in the folder BIN; in an empty folder. Warnings of what we call are errors.
set -euo pipefail
bin=$1
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
cd "$here"
export OMP_NUM_THREADS=1
tiny=(--set task.seq_len=16 --set task.kv_pairs=2 --set task.vocab_size=16 --set model.d_model=16 --set protocol.batch_size=4 --set protocol.tokens=640
    --set protocol.evaluations=5 --set protocol.validation_examples=8 --set protocol.test_examples=16)

"$bin/linbench" --help > help.txt
"$bin/linbench" list models > models.txt
"$bin/linbench" show task mqar > task.txt
"$bin/linbench" run mqar --model deltanet,attention,mamba2 --device cpu --seeds 0,1 "${tiny[@]}" --json > run.json
"$bin/linbench" run mqar --model gla --device cpu "${tiny[@]}" > run.md
cat > suite.yaml <<'YAML'
about: a smoke test
tasks: [{task: parity, set: {task.max_length: 8, task.min_length: 4}}]
models: [deltanet, gla]
seeds: 0-1
set: {model.d_model: 16, protocol.batch_size: 4, protocol.tokens: 640, protocol.evaluations: 5, protocol.validation_examples: 8, protocol.test_examples: 16}
YAML
"$bin/linbench" sweep suite.yaml --device cpu --workers 2 > sweep.md
"$bin/linbench" compare deltanet gla --suite suite.yaml --device cpu --format markdown > compare.md
for format in terminal markdown csv latex json; do "$bin/linbench" table --format "$format" > "table.$format"; done
"$bin/linbench" table --save tables
"$bin/linbench" figures --formats png,svg,pdf
"$bin/linbench" report
"$bin/linbench" gate --baseline results --candidate results --format markdown > gate.md || [ $? = 5 ]  # two seeds tell too little
"$bin/linbench" check deltanet > check.txt
"$bin/linbench" untrained capacity > untrained.md
"$bin/linbench" claims C5 --results results > claim.md
"$bin/linbench" bench length --models deltanet --lengths 16 --tokens 64 --preset tiny --repeat 3 --device cpu > bench.txt
"$bin/linbench" mistaken > mistake.txt 2>&1 && exit 1
grep -q "linbench" mistake.txt
for made in table.terminal table.markdown table.csv table.latex table.json results/report.html claim.md check.txt; do
    [ -s "$made" ] || { echo "$made is empty" >&2; exit 1; }
done
echo "smoke: $(find results/figures -type f | wc -l) figures, $(find tables -type f | wc -l) tables, $(find results -maxdepth 1 -name '*.json' | wc -l) results"
