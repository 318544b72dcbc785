# Correct is what prints the sum of all primes below 1,000,000.
expected=37550402023
printed=$(./sum) || exit 1
if [ "$printed" != "$expected" ]; then
    echo "printed $printed, expected $expected"
    exit 1
fi
