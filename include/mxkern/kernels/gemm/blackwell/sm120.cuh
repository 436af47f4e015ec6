// mxkern/kernels/gemm/blackwell/sm120.cuh: block-scaled products of sm_120a (RTX 50, RTX PRO 6000),
// one kernel a pair of schemes. Compiled, never executed.
#pragma once

#include "mxkern/kernels/gemm/blackwell/collective.cuh"

namespace mxkern::kernels {

// The element with its scale format, as CUTLASS names them, and what a row is aligned to beside
// elements of 8 bits.
template <class S>
struct CutlassScheme;

template <>
struct CutlassScheme<MxFp8E4M3> {
  using Type = cutlass::mx_float8_t<cutlass::float_e4m3_t>;
  static constexpr int alignment = 16;
};
template <>
struct CutlassScheme<MxFp8E5M2> {
  using Type = cutlass::mx_float8_t<cutlass::float_e5m2_t>;
  static constexpr int alignment = 16;
};
template <>
struct CutlassScheme<MxFp6E3M2> {
  using Type = cutlass::mx_float6_t<cutlass::float_e3m2_t>;
  static constexpr int alignment = 128;
};
template <>
struct CutlassScheme<MxFp6E2M3> {
  using Type = cutlass::mx_float6_t<cutlass::float_e2m3_t>;
  static constexpr int alignment = 128;
};
template <>
struct CutlassScheme<MxFp4> {
  using Type = cutlass::mx_float4_t<cutlass::float_e2m1_t>;
  static constexpr int alignment = 128;
};
template <>
struct CutlassScheme<NvFp4> {
  using Type = cutlass::nv_float4_t<cutlass::float_e2m1_t>;
  static constexpr int alignment = 128;
};

// Warps' own multiplication: no cluster, one tile shape, both operands along K.
template <class LeftScheme, class RightScheme>
struct Sm120Config {
  static constexpr bool both_4_bits =
      is_fp4<typename LeftScheme::Format> && is_fp4<typename RightScheme::Format>;
  using Architecture = cutlass::arch::Sm120;
  using Tile = cute::Shape<cute::_128, cute::_128, cute::_128>;
  using Cluster = cute::Shape<cute::_1, cute::_1, cute::_1>;
  using Schedule = cutlass::gemm::collective::KernelScheduleAuto;
  using Left = typename CutlassScheme<LeftScheme>::Type;
  using Right = typename CutlassScheme<RightScheme>::Type;
  using EpilogueSchedule = cutlass::epilogue::collective::EpilogueScheduleAuto;
  template <class Out>
  using EpilogueTile = cutlass::epilogue::collective::EpilogueTileAuto;
  static constexpr int left_alignment = both_4_bits ? 32 : CutlassScheme<LeftScheme>::alignment;
  static constexpr int right_alignment = both_4_bits ? 32 : CutlassScheme<RightScheme>::alignment;

  template <class Arguments>
  static void select_formats(Arguments&, const BlockScaledProduct&) {}
};

template <class Left, class Right, class Out>
using GemmSm120 = BlockScaledGemm<Sm120Config<Left, Right>, Out>;

}  // namespace mxkern::kernels
