#!/usr/bin/env bash
# Compare variants on a suite, and gate the head of a repository against its base, both run here and now, in turn. action.yml runs this script.
usage() {
    cat <<'TEXT'
usage: compare.sh --models NAMES --out DIR [options]      in a checkout of the repository that the models are from; the head is what is checked out

  --models NAMES    separated by commas, as `linbench run --model` takes them; all others are compared with the first; with --base one is enough
  --out DIR         gets copies at the end: comment.md (the gate's verdict and the comparison), report.html, base.results and head.results;
                    what it holds under these names is removed first, and never read
  --base COMMIT     gate the head against this commit; without it nothing is gated
  --suite SUITE     default: ci
  --seeds SEEDS     default: 0-5
  --rounds N        seeds are run in so many parts, base and head in turn; default: 3
  --policy FILE     of the gate
  --against DIR     folder of stored results, or reference; shown beside these in the comparison, never gated
  --form FORM       native or controlled, whatever the suite says; an nn.Module without `controlled` is native only
  --device DEVICE   default: auto
  --workers N       processes side by side, as `linbench sweep` takes them
  --cache DIR       the base's results are taken from here where the same code made them, and kept here; only what you trust may write there
  --jitter SIZE     such as 1e-6: the base is trained first, with twins whose first weights differ by so much, and before the head is trained
                    it is told what falls these seeds could show
  --time LENGTHS    such as 64,256: the variants' layers are timed, too, training, prompts and decoding at these lengths, base and head in turn

Exit codes are those of `linbench gate`: 0, 4 for a regression, 5 if it cannot be told; without --base those of `linbench compare`.
2: what was given is wrong, which is told before anything is trained.
TEXT
}
set -euo pipefail

models='' out='' base='' suite=ci seeds=0-5 rounds=3 policy='' against='' form='' device=auto workers='' cache='' jitter='' time=''
while [ $# -gt 0 ]; do
    case $1 in
        --models | --out | --base | --suite | --seeds | --rounds | --policy | --against | --form | --device | --workers | --cache | --jitter | --time)
            [ $# -ge 2 ] || { echo "compare.sh: $1 needs a value." >&2; exit 2; }
            printf -v "${1#--}" %s "$2"
            shift 2
            ;;
        -h | --help) usage; exit ;;
        *) echo "compare.sh: unknown option $1; see compare.sh --help." >&2; exit 2 ;;
    esac
done
[ -n "$models" ] && [ -n "$out" ] || { usage >&2; exit 2; }

refuse() {  # SENTENCE
    echo "compare.sh: $1" >&2
    exit 2
}

# A git hook's environment would point git at another repository, CDPATH would send cd elsewhere.
for name in $(git rev-parse --local-env-vars); do
    case $name in GIT_CONFIG*) ;; *) unset "$name" ;; esac
done
unset CDPATH PYTHONSTARTUP PYTHONINSPECT
export PYTHONSAFEPATH=1 GIT_TERMINAL_PROMPT=0  # no module is taken from the current folder, in child processes neither
python=${PYTHON:-python}
head=$(git rev-parse --show-toplevel) || refuse "run it in a checkout of the repository that the models are from."
case $python in /*) ;; */*) python=$PWD/$python ;; esac  # links stay: a virtual environment's python is one

inside() {  # PATH FOLDER: whether the path is the folder or lies in it
    case $1/ in "$2"/*) ;; *) return 1 ;; esac
}

# A link that a pull request commits must not lead what is written out of the folder asked for.
part=$out
while [ "$part" != / ] && [ "$part" != . ]; do
    if [ -L "$part" ] && inside "$(realpath -- "$(dirname -- "$part")")" "$head"; then
        refuse "--out $out leads through the link $part of the checkout; name a folder."
    fi
    part=$(dirname -- "$part")
done
mkdir -p -- "$out" 2> /dev/null || refuse "cannot make the folder $out."
out=$(realpath -- "$out")
[ ! -f "$suite" ] || suite=$(realpath -- "$suite")
[ ! -f "$policy" ] || policy=$(realpath -- "$policy")
[ ! -d "$against" ] || against=$(realpath -- "$against")
if [ -n "$cache" ]; then
    mkdir -p -- "$cache" 2> /dev/null || refuse "cannot make the folder $cache."
    cache=$(realpath -- "$cache")
fi

# What the job was given to find modules: a folder of the checkout stands for the same folder of either side, and only others serve the gate itself.
places=() trusted_path=''
IFS=: read -ra given <<< "${PYTHONPATH:-}"
for place in ${given[@]+"${given[@]}"}; do
    [ -d "$place" ] || continue  # an empty entry would be the current folder
    place=$(realpath -- "$place")
    places+=("$place")
    inside "$place" "$head" || trusted_path+=${trusted_path:+:}$place
done

# Results are made in a fresh folder outside the checkout: nothing that a pull request commits is taken for a result.
work=$(realpath -- "$(mktemp -d)")
! inside "$work" "$head" || { rmdir -- "$work"; refuse "TMPDIR lies in the checkout; name a folder outside it."; }

if [ -n "$cache" ] && inside "$cache" "$head"; then
    rmdir -- "$work"
    refuse "--cache $cache lies in the checkout, where a pull request could commit results; name a folder outside it."
fi

copies=(comment.md compare.md gate.md report.html base.results head.results)
clear_copies() {
    local name
    for name in "${copies[@]}"; do rm -rf -- "${out:?}/$name"; done
}

publish() {  # whatever there is by now; regular files only, as code of the pull request may have laid links beside them
    local name failed=0
    clear_copies || failed=1
    for name in "${copies[@]}"; do
        if [ -d "$work/$name" ]; then
            { mkdir -- "$out/$name" && find "$work/$name" -maxdepth 1 -type f -name '*.json' -exec sh -c 'cp -- "$@" "$0"' "$out/$name" {} +; } || failed=1
        elif [ -f "$work/$name" ] && [ ! -L "$work/$name" ]; then
            cp -- "$work/$name" "$out/$name" || failed=1
        fi
    done
    return $failed
}

# Lines of the code that is run could be commands to GitHub's runner; it obeys none until it reads the token, which that code is not told.
token=''
if [ "${GITHUB_ACTIONS:-}" = true ]; then
    token=$("$python" -P -c 'import secrets; print(secrets.token_hex(16))')
    echo "::stop-commands::$token"
fi

finish() {
    local code=$?
    set +e  # whatever cannot be cleaned up, the answer stays
    if ! publish; then
        echo "compare.sh: not everything could be copied to $out." >&2
        [ $code != 0 ] || code=6
    fi
    git -C "$head" worktree remove --force "$work/base.tree" 2> /dev/null
    rm -rf -- "$work"
    [ -z "$token" ] || echo "::$token::"
    exit $code
}
trap finish EXIT
clear_copies

# A side is a checkout and, where the repository is a package, that package apart from the other side's.
tree_of() {  # NAME
    case $1 in head) echo "$head" ;; base) echo "$work/base.tree" ;; esac
}

scrubbed() {  # WORDS...: without what the runner gives later steps by, and without its secrets
    env -u GITHUB_ENV -u GITHUB_PATH -u GITHUB_OUTPUT -u GITHUB_STATE -u GITHUB_STEP_SUMMARY -u GITHUB_TOKEN -u GH_TOKEN \
        -u ACTIONS_RUNTIME_TOKEN -u ACTIONS_ID_TOKEN_REQUEST_TOKEN -u ACTIONS_ID_TOKEN_REQUEST_URL "$@"
}

add_side() {  # NAME
    local tree packages=$work/$1.packages
    tree=$(tree_of "$1")
    mkdir -- "$packages"
    if [ -f "$tree/pyproject.toml" ]; then
        (cd -- "$work" && scrubbed "$python" -P -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target="$packages" -- "$tree")
    fi
}

using() {  # NAME WORDS...: python with the code of that side
    local tree path=$work/$1.packages place
    tree=$(tree_of "$1")
    for place in ${places[@]+"${places[@]}"}; do
        if inside "$place" "$head"; then path+=":$tree${place#"$head"}"; else path+=":$place"; fi
    done
    (cd -- "$tree" && PYTHONPATH=$path scrubbed "$python" -P "${@:2}")
}

on() {  # NAME WORDS...: linbench with the code of that side
    using "$1" -m linbench "${@:2}"
}

trusted() {  # WORDS...: python with no code of either side
    (cd -- "$work" && PYTHONPATH=$trusted_path env -u LINBENCH_PLUGINS "$python" -P "$@")
}

# cells that failed (3) are for the gate to name
may_fail() {
    "$@" || { local code=$?; [ $code = 3 ] || return $code; }
}

trusted -c 'import linbench' 2> /dev/null || refuse "linbench cannot be imported from outside the checkout; install it for $python."

# Whatever is wrong with what was given is told before anything is trained. No string of a user's is an option of git's, nor more than one ref.
if [ -n "$base" ]; then
    wrong="--base $base is no commit of this repository, nor one that origin has."
    case $base in -*) refuse "$wrong" ;; esac
    if ! commit=$(git rev-parse --verify --quiet --end-of-options "$base^{commit}"); then
        git check-ref-format "refs/heads/$base" || refuse "$wrong"
        git fetch --quiet --depth 1 -- origin "$base" 2> /dev/null || refuse "$wrong"
        commit=$(git rev-parse --verify --quiet --end-of-options 'FETCH_HEAD^{commit}') || refuse "$wrong"
    fi
    git worktree prune
    git -c core.hooksPath=/dev/null worktree add --quiet --force --detach -- "$work/base.tree" "$commit"
    add_side base
fi
add_side head
where='import linbench, os; print(os.path.realpath(linbench.__file__))'
same=''
[ -z "$base" ] || [ "$(using head -c "$where")" != "$(using base -c "$where")" ] || same=yes
using head -m linbench.cli.pull_request plan "$work/plan" "$models" "$suite" "$seeds" "$rounds" "$form" "$against" "$device" "$policy" "$workers" "$time" \
    "${base:+gated}" "$same"
{ read -r parts; read -r own; read -r shared; read -r beside; } < "$work/plan"
sides=(head) gated='' only=()
if [ -n "$base" ]; then
    using base -m linbench.cli.pull_request present "$work/present" "$own"
    { read -r gated || true; while read -r pattern; do only+=("--only=$pattern"); done; } < "$work/present"
    [ -z "$gated" ] || sides=(base head)
fi
models_of() {  # NAME
    case $1 in head) echo "$models" ;; base) echo "$gated${shared:+,$shared}" ;; esac
}
train() {  # NAME SEEDS SUITE; of what linbench ships the base gets the head's results
    local these=()
    [ "$1" = head ] || these=("${only[@]}")
    may_fail on "$1" sweep "--model=$(models_of "$1")" ${these[@]+"${these[@]}"} "--seeds=$2" "${how[@]}" "--results=$work/$1.results" -- "$3" > /dev/null
}

how=("--device=$device" ${form:+"--form=$form"} ${workers:+"--workers=$workers"})
if [ -n "$gated" ] && [ -n "$jitter" ]; then
    trusted -m linbench.cli.pull_request twins "$work/twins.yaml" "$suite" "$jitter"
fi
if [ -n "$gated" ] && [ -n "$cache" ]; then
    using base -m linbench.cli.pull_request recall "$work/recalled" "$cache" "$work/base.results" "$gated" "$seeds" "$form" "$device" \
        "$suite" ${jitter:+"$work/twins.yaml"}
    while read -r recalled; do echo "compare.sh: $recalled results of the base from the cache" >&2; done < "$work/recalled"
fi
if [ -n "$gated" ] && [ -n "$jitter" ]; then
    echo "compare.sh: base and its twins, seeds $seeds" >&2
    train base "$seeds" "$suite"
    train base "$seeds" "$work/twins.yaml"
    trusted -m linbench gate "--baseline=$work/base.results" ${policy:+"--policy=$policy"} >&2 || true
    sides=(head)
fi
for part in $parts; do
    for side in "${sides[@]}"; do
        echo "compare.sh: $side, seeds $part" >&2
        train "$side" "$part" "$suite"
    done
    [ ${#sides[@]} = 1 ] || sides=("${sides[1]}" "${sides[0]}")  # what goes first in one round goes last in the next
done

[ -z "$gated" ] || [ -z "$cache" ] || trusted -m linbench.cli.pull_request keep "$work/base.results" "$cache"
[ -z "$gated" ] || sides=(base head)

if [ -n "$time" ]; then
    # layers of linbench's own are timed on both sides, too: what differs between them is what the machine did
    for verb in length decode; do
        for side in "${sides[@]}"; do
            echo "compare.sh: $side, bench $verb" >&2
            may_fail on "$side" bench "$verb" "--suite=$suite" "--models=$(models_of "$side")" "--lengths=$time" "--device=$device" ${form:+"--form=$form"} \
                "--results=$work/$side.results" > /dev/null
        done
    done
fi

code=0
: > "$work/compare.md"
if [ -n "$beside" ]; then
    on head compare "--suite=$suite" "--seeds=$seeds" "${how[@]}" ${against:+"--against=$against"} "--results=$work/head.results" --format=markdown \
        -- "$models" > "$work/compare.md" || code=$?
    [ $code = 0 ] || [ $code = 3 ] || exit $code
fi
: > "$work/gate.md"
if [ -n "$gated" ]; then
    [ -z "$shared" ] || trusted -m linbench.cli.pull_request share "$work/head.results" "$work/base.results" "$shared"
    code=0
    trusted -m linbench gate "--baseline=$work/base.results" "--candidate=$work/head.results" ${policy:+"--policy=$policy"} --format=comment \
        "--save=$work/gate.md" > "$work/short.md" || code=$?
    [ -s "$work/short.md" ] || exit $code
elif [ -n "$base" ]; then
    echo '### Gate: nothing gated, as the base has none of the variants that are not of linbench.' | tee "$work/gate.md" > "$work/short.md"
fi
{
    echo '<!-- linbench -->'
    if [ -n "$base" ]; then
        cat "$work/short.md"
        [ ! -s "$work/compare.md" ] || { printf '\n<details><summary>Side by side</summary>\n\n'; cat "$work/compare.md"; printf '\n</details>\n'; }
    else
        cat "$work/compare.md"
    fi
} > "$work/comment.md"
[ -z "${GITHUB_STEP_SUMMARY:-}" ] || cat "$work/comment.md" >> "$GITHUB_STEP_SUMMARY"
trusted -m linbench report "--results=$work/head.results" "--save=$work/report.html" >&2
exit $code
