// mxkern/kernels/device/follows.h: what a kernel has to do with the one ahead of it in the stream.
#pragma once

#include <cstdint>

namespace mxkern::kernels {

enum class Follows : std::uint8_t {
  behind,  // it reads what that one writes, or writes what that one reads
  beside,  // it does neither, and both wait for the same kernels: it only has to end behind it
};

}  // namespace mxkern::kernels
