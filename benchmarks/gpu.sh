#!/usr/bin/env bash
# Everything that needs a GPU, without a network: `benchmarks/gpu.sh FOLDER` writes tests, figures and logs there in under 8 minutes.
#
# Needs Python 3.10 or later with torch for CUDA, triton, numpy, ml_dtypes, numba, typer, rich, pytest and hypothesis; cffi, a C++
# compiler and Python's headers for C programs; matplotlib for the pictures; liger-kernel, quack-kernels and transformer-engine where they
# are to be compared with. Every step has its own time limit, and a step that fails does not keep the next from running; the exit status
# is 0 only if the tests and the benchmark's results are right.
set -uo pipefail

out=$(mkdir -p "${1:?usage: gpu.sh FOLDER}" && cd "$1" && pwd)
cd "$(dirname "$0")/.." || exit 1
python=${PYTHON:-python3}
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
export ANYCANN_CACHE_DIR="${ANYCANN_CACHE_DIR:-$(mktemp -d)}"
unset TRITON_INTERPRET
status=0

plot=()
"$python" -c "import matplotlib" 2>/dev/null && plot=(--plot OUT)
deadline=450 # seconds for everything

step() { # NAME SECONDS COMMAND...
  local name=$1 limit=$2 begun=$SECONDS code=0
  shift 2
  limit=$((limit < deadline - SECONDS ? limit : deadline - SECONDS))
  if ((limit < 5)); then
    echo "$name: left out, the time is up" | tee -a "$out/summary.txt"
    return 0
  fi
  timeout "$limit" "$@" >"$out/$name.log" 2>&1 || code=$?
  echo "$name: exit status $code after $((SECONDS - begun)) s" | tee -a "$out/summary.txt"
  return "$code"
}

bench() { # NAME SECONDS OPERATOR PEERS
  step "$1" "$2" "$python" -m anycann.cli bench "$3" --device cuda --quick --repeat 21 --peers "$4" \
    --json "$out/$1.json" "${plot[@]/OUT/$out/$1.png}"
}

: >"$out/summary.txt"
nvidia-smi >"$out/nvidia-smi.txt" 2>&1
"$python" - >"$out/versions.txt" 2>&1 <<'VERSIONS'
import platform, torch, triton
print(platform.python_version(), torch.__version__, torch.version.cuda, triton.__version__, torch.cuda.get_device_name())
VERSIONS

step tests 130 "$python" -m pytest -q -p no:cacheprovider tests/gpu/kernels || status=1
step launch 20 "$python" benchmarks/launch.py || status=1
for operator in gelu_backward_v2 smooth_l1_loss_backward layer_norm_grad_beta moe_token_permute_grad nsa_compress_grad; do
  bench "$operator" 60 "$operator" torch,liger,quack,te || status=1
done
for operator in layer_norm layer_norm_backward gelu_v2 moe_token_unpermute nsa_compress smooth_l1_loss moe_token_permute \
  moe_token_unpermute_grad layer_norm_grad; do
  bench "$operator" 25 "$operator" torch,liger,quack || status=1
done
step doors 60 "$python" -m pytest -q -p no:cacheprovider tests/gpu/test_backings.py || status=1
if command -v compute-sanitizer >/dev/null; then
  small=()
  for operator in nsa_compress_grad layer_norm layer_norm_backward moe_token_permute_grad; do
    small+=("tests/gpu/kernels/test_${operator}_gpu.py")
  done
  for tool in memcheck racecheck; do # every tensor is an allocation of its own, so that memcheck sees where it ends
    step "$tool" 40 env PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool "$tool" --error-exitcode 9 \
      "$python" -m pytest -q -p no:cacheprovider "${small[@]}" -k "dropped or special" || status=1
  done
else
  echo "memcheck, racecheck: compute-sanitizer is not installed" | tee -a "$out/summary.txt"
fi
for operator in nsa_compress_grad layer_norm_grad_beta moe_token_permute_grad gelu_backward_v2 smooth_l1_loss_backward; do
  bench "$operator-compiled" 60 "$operator" compile || true # as far as the time allows
done
step compile 40 "$python" -m pytest -q -p no:cacheprovider tests/gpu/test_compile.py || true
exit "$status"
