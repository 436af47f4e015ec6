// mxkern/numerics/scheme.h: the schemes: element format, scale format, block, tensor scale or not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mxkern/numerics/format.h"
#include "mxkern/numerics/scale_format.h"

namespace mxkern {

enum class Scheme : std::uint8_t {
  mxfp8_e4m3,
  mxfp8_e5m2,
  mxfp6_e3m2,
  mxfp6_e2m3,
  mxfp4,
  mxint8,
  nvfp4
};

// What a scheme is made of. `id` and `name` come from the structs below.
template <class ElementFormat, class BlockScaleFormat, int BlockSize, bool HasTensorScale>
struct SchemeOf {
  static_assert(BlockSize == 16 || BlockSize == 32 || BlockSize == 64, "kernels cut tensors there");
  static_assert(!HasTensorScale || (is_fp4<ElementFormat> &&
                                    std::is_same_v<BlockScaleFormat, UE4M3> && BlockSize == 16),
                "tensor scales, and what kernels do with them, are those of NVFP4");
  using Format = ElementFormat;
  using ScaleFormat = BlockScaleFormat;
  static constexpr int block = BlockSize;
  static constexpr bool has_tensor_scale = HasTensorScale;
  static constexpr int block_bytes = BlockSize * ElementFormat::bits / 8;
};

template <class ElementFormat>
struct MxScheme : SchemeOf<ElementFormat, E8M0, 32, false> {};

struct MxFp8E4M3 : MxScheme<E4M3> {
  static constexpr Scheme id = Scheme::mxfp8_e4m3;
  static constexpr const char* name = "mxfp8_e4m3";
};
struct MxFp8E5M2 : MxScheme<E5M2> {
  static constexpr Scheme id = Scheme::mxfp8_e5m2;
  static constexpr const char* name = "mxfp8_e5m2";
};
struct MxFp6E3M2 : MxScheme<E3M2> {
  static constexpr Scheme id = Scheme::mxfp6_e3m2;
  static constexpr const char* name = "mxfp6_e3m2";
};
struct MxFp6E2M3 : MxScheme<E2M3> {
  static constexpr Scheme id = Scheme::mxfp6_e2m3;
  static constexpr const char* name = "mxfp6_e2m3";
};
struct MxFp4 : MxScheme<E2M1> {
  static constexpr Scheme id = Scheme::mxfp4;
  static constexpr const char* name = "mxfp4";
};
struct MxInt8 : MxScheme<INT8> {
  static constexpr Scheme id = Scheme::mxint8;
  static constexpr const char* name = "mxint8";
};
struct NvFp4 : SchemeOf<E2M1, UE4M3, 16, true> {
  static constexpr Scheme id = Scheme::nvfp4;
  static constexpr const char* name = "nvfp4";
};

}  // namespace mxkern

// The one list of schemes: names, tables, instances and tests follow from it; and one for what is
// no scheme. Tests build the library with lists of their own, whose ids take the places of these.
#if defined(MXKERN_SCHEME_LIST)
#include MXKERN_SCHEME_LIST
#else
#define MXKERN_ANY_SCHEME MxFp8E4M3
#define MXKERN_FOR_EACH_SCHEME(apply)                                                            \
  apply(MxFp8E4M3) apply(MxFp8E5M2) apply(MxFp6E3M2) apply(MxFp6E2M3) apply(MxFp4) apply(MxInt8) \
      apply(NvFp4)
#endif
