// plan/words.h: words for people that explanations of several products have.
#pragma once

#include <cstdint>
#include <string>

#include "mxkern/core/error.h"
#include "mxkern/tensor/planned_operand.h"
#include "plan/hopper/split_k.h"
#include "plan/gemm_cuda.h"

namespace mxkern {

// The name of an operand's scheme, or of the type of plain elements.
inline const char* kind_of(const PlannedOperand& operand) {
  return operand.is_plain ? name_of(operand.plain.dtype) : name_of(operand.scheme);
}

// `height`: rows of each tile.
inline std::string describe_tile(const cuda::TileSm90& tile, int height, bool is_folded) {
  return concatenate(is_folded ? "FP8" : "bfloat16", " wgmma, tiles of ", height, "x", tile.columns,
                     "x", tile.k, ", ", tile.stages, " stages, clusters of ", tile.cluster,
                     is_folded ? ", sums promoted every 128" : "");
}

// Of what is not folded, with sums of k products. Tensor cores lose something with each step.
inline std::string exact_error(std::int64_t k) {
  return k <= longest_sum ? std::string("<= 2e-5")
                          : concatenate("<= 2e-5 * ", k, " / ", longest_sum);
}

// What tests ran on are H100s and H200s.
inline const char* where_it_ran(const CudaGemmCapabilities& capabilities) {
  return capabilities.major == 9 ? "" : "; on this kind of GPU compiled, never executed";
}

inline std::string error_of(bool is_folded, std::int64_t k) {
  return concatenate("relative L2 ",
                     is_folded ? "<= 5e-4 where rows are narrow enough" : exact_error(k),
                     ", for elements of both signs");
}

}  // namespace mxkern
