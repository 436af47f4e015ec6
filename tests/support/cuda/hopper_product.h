// tests/support/cuda/hopper_product.h: products of row-scaled matrices by the Hopper kernels.
#pragma once

#include "cuda/gemm/hopper/multiply.h"
#include "tests/support/cuda/hopper_test.h"
#include "tests/support/cuda/row_scaled_product.h"

namespace mxkern::test {

struct Product : RowScaledProduct {
  using RowScaledProduct::RowScaledProduct;

  void run(const CoreGate& gate = {}, int spreads_shift = 0) {
    run_with([](const cuda::RowScaled& a, const cuda::RowScaled& b, const CoreFinish& finish,
                const CoreGate& g) { cuda::multiply_sm90("test", a, b, finish, g, Stream{}); },
             gate, spreads_shift);
  }
};

using MultiplySm90 = HopperTest;

}  // namespace mxkern::test
