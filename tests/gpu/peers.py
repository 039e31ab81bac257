"""peers.py [LENGTH …]: PyTorch's attention on the same GPU: flash and cuDNN backends (cuDNN's is the yardstick), causal,
bfloat16, 32 query heads on 8 KV heads (enable_gqa; where a backend refuses that, with keys and values of all 32 heads,
and the line says "expanded"), head dimension 128, and 256 at the first LENGTH; and a copy and a product for scale. Median of runs timed by events.
Exit 125 without a PyTorch that has a GPU."""
import sys

try:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError:
    sys.exit(125)
if not torch.cuda.is_available():
    sys.exit(125)


def median_ms(call, runs=9):
    for _ in range(3):
        call()
    times = []
    for _ in range(runs):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[runs // 2]


print(torch.__version__, torch.cuda.get_device_name())
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
b = torch.randn_like(a)
print(f"product 8192^3: {2 * 8192**3 / median_ms(lambda: a @ b) * 1e-9:.0f} TFLOP/s")
x = torch.empty(1 << 30, device="cuda", dtype=torch.uint8)
y = torch.empty_like(x)
print(f"copy: {2 * x.numel() / median_ms(lambda: y.copy_(x)) * 1e-6:.0f} GB/s")
lengths = [int(text) for text in sys.argv[1:]] or [8192, 16384, 32768, 131072]
for dim, length in [(128, length) for length in lengths] + [(256, lengths[0])]:
    q = torch.randn(1, 32, length, dim, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(1, 8, length, dim, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    flops = 4 * dim * 32 * length * (length + 1) / 2
    wide = f" (heads of {dim})" * (dim != 128)
    for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION"):
        for expanded in (False, True):
            try:
                keys, values = (x.repeat_interleave(4, dim=1) for x in (k, v)) if expanded else (k, v)
                grouped = {} if expanded else {"enable_gqa": True}
                with sdpa_kernel(getattr(SDPBackend, name)):
                    ms = median_ms(
                        lambda: torch.nn.functional.scaled_dot_product_attention(q, keys, values, is_causal=True, **grouped),
                        3 if length > 100000 else 9)
                print(f"{name} {length}: {ms:.3f} ms {flops / ms * 1e-9:.1f} TFLOP/s{' expanded' * expanded}{wide}")
                break
            # No kernel for these; a PyTorch before 2.5 knows neither enable_gqa nor cuDNN's.
            except (RuntimeError, TypeError, AttributeError) as error:
                print(f"{name} {length}{' expanded' * expanded}{wide}: {str(error).splitlines()[0]}")
