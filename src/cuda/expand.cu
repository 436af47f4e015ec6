// cuda/expand.cu: launches of the expanding kernel.
#include "cuda/expand.h"

#include "cuda/expand_operand.h"
#include "cuda/launch.h"
#include "mxkern/kernels/expand.cuh"

namespace mxkern::cuda {
namespace {

Device device_of(const GemmOperand& operand) {
  return visit_source(operand, [](const auto& source) { return source.device; });
}

void expand_one(const char* function, const kernels::ExpandParameters& p, Stream stream) {
  const kernels::ExpandOperand& o = p.operand;
  if (o.groups == 0) return;
  const auto launch_kind = [&]<class Kind>(TypeTag<Kind>) {
    launch<Start::early>(function, kernels::expand_kernel<Kind, expanded_exponent>,
                         grid_of(o.groups), kernels::team_threads, 0, stream, p);
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
