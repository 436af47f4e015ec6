// tests/structure/blackwell_kernels_test.cc: CUTLASS's own rules accept what we hand to it, refuse
// what we keep from it, and its kernels want no working memory. Needs no device; nothing is run.
#include <gtest/gtest.h>

#include <vector>

#include "cuda/gemm/blackwell/product.h"
#include "cuda/gemm/blackwell/kernels.h"
#include "mxkern/core/dtype.h"

namespace mxkern::cuda {
namespace {

using kernels::BlockScaledKernel;

struct Named {
  const char* architecture;
  Scheme left, right;
  DType dtype;
  BlockScaledKernel kernel;
};

std::vector<Named> all_kernels() {
  return {
#define MXKERN_NAME(architecture, Left, Right)              \
  {#architecture, Left::id, Right::id, DType::float32,      \
   architecture##_kernel<Left, Right, float>()},            \
      {#architecture, Left::id, Right::id, DType::bfloat16, \
       architecture##_kernel<Left, Right, bfloat16>()},
#if defined(MXKERN_HAS_SM100)
#define MXKERN_NAME_SM100(Left, Right) MXKERN_NAME(sm100, Left, Right)
    MXKERN_FOR_EACH_SM100_PAIR(MXKERN_NAME_SM100)
#endif
#if defined(MXKERN_HAS_SM120)
#define MXKERN_NAME_SM120(Left, Right) MXKERN_NAME(sm120, Left, Right)
    MXKERN_FOR_EACH_SM120_KIND(MXKERN_NAME_SM120)
#endif
  };
}

std::uint8_t* at(std::uintptr_t address) { return reinterpret_cast<std::uint8_t*>(address); }

TEST(BlackwellKernels, AcceptAndRefuseAsWeDo) {
  ASSERT_FALSE(all_kernels().empty());
  for (const Named& named : all_kernels()) {
    int accepted = 0, refused = 0;
    for (const std::int64_t batch : {1, 3}) {
      for (const std::int64_t m : {1, 100, 129, 1000}) {
        for (const std::int64_t n : {1, 2, 4, 6, 8, 12, 128, 200, 204}) {
          for (const std::int64_t k : {8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 400, 1024}) {
            const BlockScaled a{.scheme = named.left,
                                .shape = {batch, m, k},
                                .scale_layout = ScaleLayout::swizzled,
                                .codes = at(0x10000),
                                .scales = at(0x20000),
                                .tensor_scale = nullptr,
                                .device = {}};
            BlockScaled b = a;
            b.scheme = named.right;
            b.shape.rows = n;
            const Buffer out = Buffer::dense(at(0x30000), named.dtype, {batch, m, n});
            const bool ours = why_not_blackwell(a, b, out) == nullptr;
            const auto product = blackwell_product(a, b, out);
            ASSERT_EQ(named.kernel.can_implement(product), ours)
                << named.architecture << " " << name_of(named.left) << " with "
                << name_of(named.right) << " to " << name_of(named.dtype) << ", " << batch << " x "
                << m << " x " << n << " x " << k;
            if (ours) {
              EXPECT_EQ(named.kernel.workspace_bytes(product), 0u);
            }
            ++(ours ? accepted : refused);
          }
        }
      }
    }
    EXPECT_GT(accepted, 0) << named.architecture << " " << name_of(named.left);
    EXPECT_GT(refused, 0) << named.architecture << " " << name_of(named.left);
  }
}

}  // namespace
}  // namespace mxkern::cuda
