#!/usr/bin/env bash
# Check exactness and speed on a GPU, from the root of the repository; under 9 minutes on one that holds an 8B model.
# Each step has a time limit, and its output goes to OUT as well. DEVICE=cpu MODEL=random:tiny SLOWER=10 tries it
# without a GPU, where the last step exceeds the context of the model.
set -uo pipefail
cd "$(dirname "$0")/.."
OUT=${OUT:-build/gpu-check}
PYTHON=${PYTHON:-.venv/bin/python}
DEVICE=${DEVICE:-cuda}
MODEL=${MODEL:-random:llama-8b}
DTYPE=${DTYPE:-bfloat16}
SLOWER=${SLOWER:-1} # factor of the time limits
mkdir -p "$OUT"
failed=0

step() { # step NAME SECONDS ARGUMENTS OF PYTHON
  local name=$1 limit=$2 start=$SECONDS status=0
  shift 2
  timeout "$((limit * SLOWER))" "$PYTHON" -m "$@" >"$OUT/$name.txt" 2>"$OUT/$name.err" || status=$?
  echo "== $name: status $status, $((SECONDS - start)) s"
  cat "$OUT/$name.txt"
  if [ "$status" -ne 0 ]; then
    failed=1
    tail -n 20 "$OUT/$name.err"
  fi
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || echo "no NVIDIA GPU"
"$PYTHON" -c 'import torch, transformers; print("torch", torch.__version__, "transformers", transformers.__version__)'
speed=(pine_engine bench --device "$DEVICE" --dtype "$DTYPE" --model "$MODEL" --json)
step exactness 200 tools.gpu_exactness --device "$DEVICE"
for dtype in float32 bfloat16; do
  step "self-test-$dtype" 45 pine_engine verify --self-test --model random:tiny --device "$DEVICE" --dtype "$dtype" --json
done
step 20x140 90 "${speed[@]}" --documents 20 --document-tokens 140 --max-new-tokens 24 --repeats 3
step 2x200 50 "${speed[@]}" --documents 2 --document-tokens 200 --max-new-tokens 24 --repeats 5 --methods vanilla,pine
step profile 40 tools.profile_method pine --device "$DEVICE" --dtype "$DTYPE" --model "$MODEL" --documents 20 --document-tokens 140 --max-new-tokens 16
step 50x600 70 "${speed[@]}" --documents 50 --document-tokens 600 --max-new-tokens 16 --repeats 1 --methods vanilla,pine
exit "$failed"
