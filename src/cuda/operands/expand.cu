// cuda/operands/expand.cu: launches of the expanding kernel.
#include "cuda/operands/expand.h"

#include <bit>

#include "cuda/runtime/even_bytes.h"
#include "cuda/operands/expand_operand.h"
#include "cuda/runtime/launch.h"
#include "mxkern/kernels/operands/expand.cuh"

namespace mxkern::cuda {
namespace {

Device device_of(const GemmOperand& operand) {
  return visit_source(operand, [](const auto& source) { return source.device; });
}

// Longer teams, of which each thread has fewer loads in flight, where there are so few rows that
// all thread blocks fit on the device at once all the same; or, with fewer rows than
// multiprocessors, on half of these, as the product behind starts on the others.
void lengthen_teams(const char* function, kernels::ExpandOperand& o, int unit) {
  constexpr int log2_most = std::bit_width(unsigned{kernels::team_threads}) - 1;
  const std::int64_t processors = processor_count(function);
  const std::int64_t fit =
      o.batch * o.rows > processors ? kernels::expand_blocks * processors : processors / 2;
  const auto groups_of = [&](int log2) {
    return ceil_div(o.batch * o.rows, std::int64_t{kernels::team_threads} >> log2);
  };
  while (o.log2_team < log2_most && unit << o.log2_team < o.columns &&
         groups_of(o.log2_team + 1) <= fit) {
    ++o.log2_team;
  }
  o.groups = groups_of(o.log2_team);
}

void expand_one(const char* function, kernels::ExpandParameters& p, Stream stream) {
  kernels::ExpandOperand& o = p.operand;
  if (o.groups == 0) return;
  const auto launch_kind = [&]<class Kind>(TypeTag<Kind>) {
    lengthen_teams(function, o, expand_unit<Kind>());
    launch<Start::early>(function, kernels::expand_kernel<Kind, expanded_exponent>,
                         grid_of(o.groups), kernels::team_threads,
                         spread_bytes(function, o.groups, kernels::expand_blocks, 0), stream, p);
  };
  if (o.codes != nullptr) {
    visit(o.scheme, [&](auto scheme) { launch_kind(TypeTag<decltype(scheme)>{}); });
  } else {
    visit(o.dtype, launch_kind);
  }
}

}  // namespace

void expand(const char* function, const ExpandTask& first, const ExpandTask& second, Stream stream,
            const ZeroedWords& zeroed) {
  const GemmOperand* any = first.operand != nullptr ? first.operand : second.operand;
  if (any == nullptr) return;
  const DeviceScope scope(device_of(*any), function);
  kernels::ExpandParameters p = {}, other = {};
  p.operand = expand_operand(function, first);
  other.operand = expand_operand(function, second);
  (p.operand.groups > 0 ? p : other).counters = {zeroed.data, zeroed.count};
  if (p.operand.groups > 0) other.follows = kernels::Follows::beside;
  expand_one(function, p, stream);
  expand_one(function, other, stream);
}

}  // namespace mxkern::cuda
