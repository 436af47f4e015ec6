// mxkern/swiglu.h: the activation between the two products of a feed-forward layer.
#pragma once

#include <cstdint>
#include <limits>

#include "mxkern/core/buffer.h"
#include "mxkern/core/platform.h"

namespace mxkern {

// Where a row of 2 F elements has its gates. halves: in the first F. interleaved: in those of even
// index, as gpt-oss has them.
enum class GateLayout : std::uint8_t { halves, interleaved };

inline constexpr GateLayout all_gate_layouts[] = {GateLayout::halves, GateLayout::interleaved};

struct SwigluOptions {
  float alpha = 1.0f;
  float limit = std::numeric_limits<float>::infinity();  // of gates from above, of the others too
  float offset = 0.0f;                                   // added to what a gate lets through
  GateLayout layout = GateLayout::halves;

  // As gpt-oss computes it.
  static constexpr SwigluOptions gpt_oss() { return {1.702f, 7.0f, 1.0f, GateLayout::interleaved}; }
};

// out[.., i] = g / (1 + e^(-alpha g)) * (u + offset), with the gate g at most `limit` and u, what
// it lets through, within -limit and limit; computed in float32 and rounded once. x [batch, rows, 2
// F], out [batch, rows, F] of x's dtype, in memory of its own. The same bytes on every device, but
// for those of a NaN. Throws InvalidArgument.
MXKERN_API void swiglu(const Buffer& x, const Buffer& out, const SwigluOptions& options = {},
                       Stream stream = {});

}  // namespace mxkern
