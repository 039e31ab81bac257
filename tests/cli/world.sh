# Sourced by tests of sweeps, which set root (the source tree) before: a work folder that is removed at the
# end, failures, equal tables, a corpus and models.
. "$root/tests/work.sh"
. "$root/tests/limits.sh"

# same A B: the tables A and B are equal except for /run.
same() {
    h5diff --exclude-path=/run "$1" "$2" >"$work/diff" 2>&1 ||
        fail "$1 and $2 differ: $(head -5 "$work/diff")"
}
# make_model NAME [KIND]: random weights (tiny_model.py) in $work/NAME.
make_model() {
    python3 "$root/tests/cli/tiny_model.py" "$root/data/reference/tokenizer.json" "$work/$1" ${2:-} || exit 1
}
mkdir "$work/corpus"
for book in "$root"/data/sample/test/90000*.txt; do
    head -c 6000 "$book" >"$work/corpus/$(basename "$book")"
done
