#!/usr/bin/env bash
# Builds and runs the C tests under sanitizers.
#
#   csrc/tests/run.sh            every csrc/tests/*/test_*.c under ASan and UBSan; those that use
#                                threads (IN_TSAN) under TSan too
#   csrc/tests/run.sh vec snake  only core/test_vec.c and envs/test_snake.c
#   csrc/tests/run.sh sync       only the tests in csrc/tests/sync/
#
# All C files and the envs of envs.def are compiled once per sanitizer, into build/native/. An env's
# test includes the env's C file; that copy gets a symbol of its own, next to the one linked in.
# JOBS (2): parallel compilers and tests; CC (gcc): the compiler; TEST_SECONDS (600): time limit of
# one test; SANITIZERS (asan tsan): which to build for.
set -u
cd "$(dirname "$0")/../.." || exit 1

CC=${CC:-gcc}
JOBS=${JOBS:-2}
TEST_SECONDS=${TEST_SECONDS:-600}
SANITIZERS=${SANITIZERS:-asan tsan}
BUILD=build/native
FLAGS="-std=gnu11 -Wall -Wextra -Werror -g1 -O1 -fno-omit-frame-pointer -ffp-contract=off -DPUF_NO_CLONES -Icsrc"
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:detect_stack_use_after_return=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1}

declare -A SANITIZE=(
    [asan]="-fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all"
    [tsan]="-fsanitize=thread"
)
IN_TSAN=" pool vec every_env flags barrier threads engine muon "

# Sanitizers lay out the address space themselves; some kernels randomise more than they allow for.
FIXED=""
setarch -R true 2>/dev/null && FIXED="setarch -R"

# One run at a time in a tree: two would write the same objects.
mkdir -p "$BUILD"
exec 9>"$BUILD/lock"
command -v flock >/dev/null && flock 9

passed=0
failed=0

report() { # result, sanitizer, name, rest of the line
    printf '%-6s %-5s %-18s %s\n' "$1" "$2" "$3" "$4"
}

indent() { sed 's/^/       | /' "$1"; }

env_names() { sed -n 's/^ENV(\([a-z0-9_]*\)).*/\1/p' csrc/envs.def; }

# Whether $1 is missing or older than one of the other files.
stale() {
    local object=$1 source
    shift
    [ -e "$object" ] || return 0
    for source in "$@"; do [ "$source" -nt "$object" ] && return 0; done
    return 1
}

# Prints the path of a test's C file; $1 is its name.
test_file() { find csrc/tests -name "test_$1.c"; }

# Prints "source<TAB>object" for each C file to link; $1 is the sanitizer.
objects() {
    local source name
    for source in csrc/*.c csrc/{core,sync,nn}/*.c $(env_names | sed 's|.*|csrc/envs/&.c|'); do
        name=${source#csrc/}
        printf '%s\t%s\n' "$source" "$BUILD/$1/${name//\//_}.o"
    done
}

# Compiles what is out of date, then puts all of it into one archive.
build_core() {
    local sanitizer=$1 source object headers
    headers=(csrc/*.h csrc/*/*.h csrc/envs.def csrc/tests/run.sh)
    mkdir -p "$BUILD/$sanitizer"
    while IFS=$'\t' read -r source object; do
        stale "$object" "$source" "${headers[@]}" && printf '%s\0%s\0' "$source" "$object"
    done < <(objects "$sanitizer") |
        xargs -0 -r -n 2 -P "$JOBS" sh -c \
            "$CC $FLAGS ${SANITIZE[$sanitizer]} -c \"\$0\" -o \"\$1.new\" && mv \"\$1.new\" \"\$1\"" \
            >"$BUILD/$sanitizer/core.log" 2>&1
    if [ $? -ne 0 ]; then
        failed=$((failed + 1))
        report FAILED "$sanitizer" "(core and envs)" "does not compile"
        indent "$BUILD/$sanitizer/core.log"
        return 1
    fi
    rm -f "$BUILD/$sanitizer/libpuffer.a"
    objects "$sanitizer" | cut -f 2 | xargs ar rcs "$BUILD/$sanitizer/libpuffer.a"
}

build_test() { # sanitizer, name
    local under_test=""
    [ -e "csrc/envs/$2.c" ] && under_test="-Dpuf_env_$2=puf_env_$2_under_test"
    # shellcheck disable=SC2086
    $CC $FLAGS ${SANITIZE[$1]} $under_test "$(test_file "$2")" -o "$BUILD/$1/test_$2" \
        "$BUILD/$1/libpuffer.a" -lpthread -lm >"$BUILD/$1/test_$2.log" 2>&1
}

# Runs a test and reports it; a file test_<name>.passed stays if all is well.
run_test() { # sanitizer, name
    local program="$BUILD/$1/test_$2" log="$BUILD/$1/test_$2.log" start code
    rm -f "$program" "$program.passed"
    if ! build_test "$1" "$2"; then
        report FAILED "$1" "$2" "does not build"
        indent "$log"
        return
    fi
    start=$(date +%s%N)
    # shellcheck disable=SC2086
    timeout "$TEST_SECONDS" $FIXED "$program" >"$log" 2>&1
    code=$?
    if [ $code -eq 0 ]; then
        touch "$program.passed"
        report ok "$1" "$2" "$(tail -n 1 "$log")  ($((($(date +%s%N) - start) / 1000000)) ms)"
    else
        report FAILED "$1" "$2" "exit code $code"
        indent "$log"
    fi
}

[ $# -gt 0 ] || set -- core sync nn envs
names=()
for argument in "$@"; do
    if [ -d "csrc/tests/$argument" ]; then
        files=(csrc/tests/"$argument"/test_*.c)
    else
        files=("$(test_file "$argument")")
    fi
    for file in "${files[@]}"; do
        if ! [ -e "$file" ]; then
            echo "unknown test: $argument must name a csrc/tests/*/test_<name>.c or a folder" >&2
            exit 2
        fi
        name=$(basename "$file" .c)
        names+=("${name#test_}")
    done
done

for sanitizer in $SANITIZERS; do
    chosen=()
    for name in "${names[@]}"; do
        [ $sanitizer = asan ] || [[ $IN_TSAN == *" $name "* ]] && chosen+=("$name")
    done
    [ ${#chosen[@]} -gt 0 ] || continue
    build_core $sanitizer || continue
    running=0
    for name in "${chosen[@]}"; do
        # one write, so that lines of two tests do not mix
        { lines=$(run_test $sanitizer "$name"); printf '%s\n' "$lines"; } &
        running=$((running + 1))
        if [ $running -ge "$JOBS" ]; then
            wait -n
            running=$((running - 1))
        fi
    done
    wait
    for name in "${chosen[@]}"; do
        if [ -e "$BUILD/$sanitizer/test_$name.passed" ]; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
        fi
    done
done

echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
