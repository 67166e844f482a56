#!/usr/bin/env bash
# The end-to-end runs of Office-Home on one GPU, those that matter most first.
#
#   benchmarks/scripts/office_home/end_to_end.sh DATA WEIGHTS OUT SECONDS
#
# DATA has the folders Art, Clipart, Product and Real_World, WEIGHTS is a file for resnet50-v1. Two
# queues share the card; when the seconds are over, the same command goes on with what is missing.
set -uo pipefail
data=$1 weights=$2 out=$3 seconds=$4
# Three processes with a thread for each of sixteen cores took three times as long as two with six.
export OMP_NUM_THREADS=6
four=Art-Clipart,Clipart-Product,Product-Real_World,Real_World-Art
end=$((SECONDS + seconds))
more= # options of a run that are not the defaults

bench() { # FOLDER STEPS ARGUMENT…
    local folder=$1 steps=$2 left=$((end - SECONDS))
    shift 2
    ((left > 30)) || return 0
    timeout --signal=INT "$left" python -m unida bench office-home --data "$data" \
        --out "$out/$folder" --workers 1 --runs-per-worker 12 "$@" --option backbone=resnet50-v1 \
        weights="$weights" steps="$steps" ${launch-compile=true} checkpoint_every=5000 log_every=500 $more
}

tables() { # METHOD
    bench unda 1000 --methods "$1" --seeds 3 --keep-models
    bench oda 1000 --setting oda --methods "$1" --seeds 1 --tasks $four
}

robustness() { # METHOD
    bench noise 1000 --methods "$1" --seeds 1 --tasks Clipart-Product --noise 0,0.1,0.2,0.3,0.4,0.5
    bench unknowns 1000 --methods "$1" --seeds 1 --tasks Clipart-Product --unknowns 10,20,30,40
}

tables san & tables ovanet & wait
python "$(dirname "$0")/../ensemble.py" "$out/unda" --out "$out/ensemble"
robustness san & robustness ovanet & wait
robustness san-no-scl & launch= bench unda 1000 --methods dcc --seeds 1 --tasks $four & wait
bench unda 1000 --methods san-no-scl,san-info-nce,san-no-aio --seeds 1 --tasks $four
bench external_reference 10000 --methods ovanet --seeds 1 --tasks Art-Clipart & bench unda 1000 --methods san-released --seeds 1 --tasks $four & wait
bench closed 1000 --setting closed --methods source_only --seeds 1 & more=precision=tf32 bench precision 1000 --methods ovanet --seeds 1 --tasks Art-Product,Product-Art & wait
# The normalisation and the learning rate of the papers
more="batch_norm=batch backbone_lr=0.1"
bench published_10000 10000 --methods ovanet --seeds 1 & bench published_3000 3000 --methods ovanet --seeds 1 & wait
bench closed_published 1000 --setting closed --methods source_only --seeds 1
