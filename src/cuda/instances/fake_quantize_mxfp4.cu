// cuda/instances/fake_quantize_mxfp4.cu: the kernels of fake_quantize of one scheme.
#include "cuda/fake_quantize_instances.cuh"

namespace mxkern::cuda {
template void launch_fake_quantize<MxFp4>(const char*, DType, const QuantizeOptions&,
                                          const kernels::FakeQuantizeParameters&, Stream);
}  // namespace mxkern::cuda
