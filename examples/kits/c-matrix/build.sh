# Builds both measuring programs and the check. Only multiply.c is a change's to write.
set -e
cc -O3 -Wall -o inside inside.c multiply.c -lm
cc -O3 -Wall -o apart apart.c -lm
cc -O3 -Wall -o worker worker.c multiply.c
cc -O3 -Wall -o check check.c multiply.c -lm
