#!/usr/bin/env bash
# Variants side by side on a suite, and the head of a repository gated against its base, both run here and now, in turn. What action.yml runs.
usage() {
    cat <<'TEXT'
usage: compare.sh --models NAMES --out DIR [options]      in a checkout of the repository that the models are from; the head is what is checked out

  --models NAMES    separated by commas, as `linbench run --model` takes them; all others are compared with the first
  --out DIR         what is written here: comment.md (the gate's verdict and the comparison), report.html, and the results of base and head
  --base COMMIT     gate the head against this commit; without it nothing is gated
  --suite SUITE     default: quick
  --seeds SEEDS     default: 0-5
  --rounds N        seeds are run in so many parts, base and head in turn; default: 3
  --policy FILE     of the gate
  --against DIR     folder of stored results, or reference; beside these, too
  --form FORM       native or controlled, whatever the suite says
  --device DEVICE   default: auto
  --workers N       processes side by side, as `linbench sweep` takes them
  --time LENGTHS    such as 64,256: the variants' layers are timed, too, training, prompts and decoding at these lengths, base and head in turn

Ends as `linbench gate` does: 0, 4 for a regression, 5 if it cannot be told; without --base as `linbench compare` does.
2: what was given is wrong, which is told before anything is trained.
TEXT
}
set -euo pipefail

models='' out='' base='' suite=quick seeds=0-5 rounds=3 policy='' against='' form='' device=auto workers='' time=''
while [ $# -gt 0 ]; do
    case $1 in
        --models | --out | --base | --suite | --seeds | --rounds | --policy | --against | --form | --device | --workers | --time)
            [ $# -ge 2 ] || { echo "compare.sh: $1 needs a value." >&2; exit 2; }
            printf -v "${1#--}" %s "$2"
            shift 2
            ;;
        -h | --help) usage; exit ;;
        *) echo "compare.sh: unknown option $1; see compare.sh --help." >&2; exit 2 ;;
    esac
done
[ -n "$models" ] && [ -n "$out" ] || { usage >&2; exit 2; }
python=${PYTHON:-python}
mkdir -p "$out" 2> /dev/null || { echo "compare.sh: cannot make the folder $out." >&2; exit 2; }
out=$(cd "$out" && pwd)
head=$(git rev-parse --show-toplevel)
[ ! -f "$suite" ] || suite=$(realpath "$suite")
[ ! -f "$policy" ] || policy=$(realpath "$policy")
[ ! -d "$against" ] || against=$(realpath "$against")

# a side is a checkout and, where the repository is a package, that package apart from the other side's
add_side() {  # NAME CHECKOUT
    ln -sfn "$2" "$out/$1.checkout"
    mkdir -p "$out/$1.packages"
    if [ -f "$2/pyproject.toml" ]; then
        "$python" -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target "$out/$1.packages" "$2"
    fi
}

using() {  # NAME WORDS...: python with the code of that side
    (cd "$out/$1.checkout" && PYTHONPATH="$out/$1.packages${PYTHONPATH:+:$PYTHONPATH}" "$python" -P "${@:2}")
}

on() {  # NAME WORDS...: linbench with the code of that side
    using "$1" -m linbench "${@:2}"
}

# cells that failed (3) are for the gate to name
may_fail() {
    "$@" || { local code=$?; [ $code = 3 ] || return $code; }
}

# whatever is wrong with what was given is told before anything is trained
if [ -n "$base" ] && ! git cat-file -e "$base^{commit}" 2> /dev/null; then
    git fetch --quiet --depth 1 origin "$base" 2> /dev/null || { echo "compare.sh: --base $base is no commit of this repository, nor one that origin has." >&2; exit 2; }
    base=$(git rev-parse FETCH_HEAD)
fi
add_side head "$head"
parts=$(using head - "$models" "$suite" "$seeds" "$rounds" "$form" "$against" "$device" "$policy" "$workers" "$time" <<'PY'
import sys
from contextlib import redirect_stdout
from pathlib import Path
from linbench.cli.options import numbers
from linbench.common.errors import UserError
from linbench.common.seeds import parse_seeds
from linbench.compare import comparing
from linbench.pattern import split_models
from linbench.policy import load as load_policy
from linbench.suite import load
models, suite, given, rounds, form, against, device, policy, workers, time = sys.argv[1:]
try:
    if not rounds.isdecimal() or int(rounds) < 1:
        raise UserError(f"--rounds {rounds}: a whole number of at least 1 would do.")
    if workers and not workers.isdecimal():
        raise UserError(f"--workers {workers}: a whole number would do.")
    load_policy(Path(policy) if policy else None)
    numbers("--time", time or None)
    seeds, count = parse_seeds(given), int(rounds)
    with redirect_stdout(sys.stderr):  # a plugin may print
        comparing(split_models(models), load(suite), seeds=given, form=form or None, against=against or None, device=device)
except UserError as error:
    print(f"compare.sh: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
parts = (seeds[len(seeds) * i // count : len(seeds) * (i + 1) // count] for i in range(count))
print(*(",".join(map(str, part)) for part in parts if part))
PY
)
rm -f "$out"/{comment,compare,gate}.md "$out/report.html"  # of a run before this one
sides=(head)
if [ -n "$base" ]; then
    rm -rf "$out/base.tree"
    git worktree prune
    git worktree add --quiet --force --detach "$out/base.tree" "$base"
    trap 'git -C "$head" worktree remove --force "$out/base.tree"' EXIT
    add_side base "$out/base.tree"
    sides=(base head)
fi

cd "$out"
how=(--device "$device" ${form:+--form "$form"} ${workers:+--workers "$workers"})
for part in $parts; do
    for side in "${sides[@]}"; do
        echo "compare.sh: $side, seeds $part" >&2
        may_fail on "$side" sweep "$suite" --model "$models" --seeds "$part" "${how[@]}" --results "$out/$side.results" > /dev/null
    done
    [ ${#sides[@]} = 1 ] || sides=("${sides[1]}" "${sides[0]}")  # what goes first in one round goes last in the next
done

if [ -n "$time" ]; then
    for verb in length decode; do
        for side in "${sides[@]}"; do
            echo "compare.sh: $side, bench $verb" >&2
            may_fail on "$side" bench "$verb" --suite "$suite" --models "$models" --lengths "$time" --device "$device" ${form:+--form "$form"} \
                --results "$out/$side.results" > /dev/null
        done
    done
fi

code=0
on head compare "$models" --suite "$suite" --seeds "$seeds" "${how[@]}" ${against:+--against "$against"} --results "$out/head.results" \
    --format markdown > "$out/compare.md" || code=$?
[ $code = 0 ] || [ $code = 3 ] || exit $code
: > "$out/gate.md"
if [ -n "$base" ]; then
    code=0
    on head gate --baseline "$out/base.results" --candidate "$out/head.results" ${policy:+--policy "$policy"} --format markdown > "$out/gate.md" || code=$?
    [ -s "$out/gate.md" ] || exit $code
fi
{ echo '<!-- linbench -->'; cat "$out/gate.md" "$out/compare.md"; } > "$out/comment.md"
[ -z "${GITHUB_STEP_SUMMARY:-}" ] || cat "$out/comment.md" >> "$GITHUB_STEP_SUMMARY"
on head report --results "$out/head.results" --save "$out/report.html" >&2
exit $code
