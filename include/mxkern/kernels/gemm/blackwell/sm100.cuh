// mxkern/kernels/gemm/blackwell/sm100.cuh: block-scaled products of sm_100a (B200), one kernel a
// pair of widths. Compiled, never executed.
#pragma once

#include <type_traits>

#include "mxkern/kernels/gemm/blackwell/collective.cuh"

namespace mxkern::kernels {

// 16 KiB at a time: what the builder picks for float32 would leave the operands no memory.
template <class Out>
using Sm100EpilogueTile = cute::Shape<cute::_128, cute::Int<128 / static_cast<int>(sizeof(Out))>>;

// Elements of 8 bits, and 6 or 4 bits beside 8: the instruction is told the formats when it runs,
// so that one kernel serves all formats of a width. Two multiprocessors share a tile.
template <class LeftElement, class RightElement, int RightAlignment>
struct Sm100MixedConfig {
  using Architecture = cutlass::arch::Sm100;
  using Tile = cute::Shape<cute::_256, cute::_256, cute::_128>;
  using Cluster = cute::Shape<cute::_2, cute::_1, cute::_1>;
  using Schedule = cutlass::gemm::KernelTmaWarpSpecialized2SmMxf8f6f4Sm100;
  using Left = LeftElement;
  using Right = RightElement;
  using EpilogueSchedule = cutlass::epilogue::TmaWarpSpecialized2Sm;
  template <class Out>
  using EpilogueTile = Sm100EpilogueTile<Out>;
  static constexpr int left_alignment = 16, right_alignment = RightAlignment;

  static cute::UMMA::MXF8F6F4Format format_of(Scheme scheme) {
    switch (scheme) {
      case Scheme::mxfp8_e5m2: return cute::UMMA::MXF8F6F4Format::E5M2;
      case Scheme::mxfp6_e2m3: return cute::UMMA::MXF8F6F4Format::E2M3;
      case Scheme::mxfp6_e3m2: return cute::UMMA::MXF8F6F4Format::E3M2;
      case Scheme::mxfp4: return cute::UMMA::MXF8F6F4Format::E2M1;
      default: return cute::UMMA::MXF8F6F4Format::E4M3;
    }
  }

  template <class Arguments>
  static void select_formats(Arguments& arguments, const BlockScaledProduct& product) {
    arguments.runtime_data_type_a = format_of(product.left_scheme);
    arguments.runtime_data_type_b = format_of(product.right_scheme);
  }
};

// 4 bits on both sides, at twice the rate of 8.
template <class Element, class KernelSchedule>
struct Sm100Fp4Config {
  using Architecture = cutlass::arch::Sm100;
  using Tile = cute::Shape<cute::_256, cute::_256, cute::_256>;
  using Cluster = cute::Shape<cute::_2, cute::_1, cute::_1>;
  using Schedule = KernelSchedule;
  using Left = Element;
  using Right = Element;
  using EpilogueSchedule = cutlass::epilogue::TmaWarpSpecialized2Sm;
  template <class Out>
  using EpilogueTile = Sm100EpilogueTile<Out>;
  static constexpr int left_alignment = 32, right_alignment = 32;

  template <class Arguments>
  static void select_formats(Arguments&, const BlockScaledProduct&) {}
};

// By schemes; those of 6 and 8 bits stand for every scheme of their width.
template <class Left, class Right>
struct Sm100Config;

template <>
struct Sm100Config<MxFp8E4M3, MxFp8E4M3>
    : Sm100MixedConfig<cutlass::type_erased_dynamic_mx_float8_t,
                       cutlass::type_erased_dynamic_mx_float8_t, 16> {};
template <>
struct Sm100Config<MxFp8E4M3, MxFp6E3M2>
    : Sm100MixedConfig<cutlass::type_erased_dynamic_mx_float8_t,
                       cutlass::type_erased_dynamic_mx_float6_t, 128> {};
template <>
struct Sm100Config<MxFp8E4M3, MxFp4>
    : Sm100MixedConfig<cutlass::type_erased_dynamic_mx_float8_t,
                       cutlass::type_erased_dynamic_mx_float4_t, 128> {};
template <>
struct Sm100Config<MxFp4, MxFp4>
    : Sm100Fp4Config<cutlass::mx_float4_t<cutlass::float_e2m1_t>,
                     cutlass::gemm::KernelTmaWarpSpecialized2SmMxf4Sm100> {};
template <>
struct Sm100Config<NvFp4, NvFp4>
    : Sm100Fp4Config<cutlass::nv_float4_t<cutlass::float_e2m1_t>,
                     cutlass::gemm::KernelTmaWarpSpecialized2SmNvf4Sm100> {};

template <class Left, class Right, class Out>
using GemmSm100 = BlockScaledGemm<Sm100Config<Left, Right>, Out>;

}  // namespace mxkern::kernels
