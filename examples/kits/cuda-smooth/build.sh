# Builds the measuring program and the check. Only smooth.cu is a change's to write.
set -e
nvcc -O3 -o measure measure.cu smooth.cu
nvcc -O3 -o check check.cu smooth.cu
