// examples/headers_only/main.cc: one block to codes and back, with the header-only numerics.
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "mxkern/numerics/block_scale.h"
#include "mxkern/numerics/codec.h"
#include "mxkern/numerics/visit.h"
#include "mxkern/tensor/packing.h"

// Nearly all of it is constexpr: the compiler has checked this one.
static_assert(mxkern::decode<mxkern::E2M1>(mxkern::encode<mxkern::E2M1>(2.9f)) == 3.0f);

int main() {
  using Scheme = mxkern::MxFp6E2M3;
  using Format = Scheme::Format;

  float block[Scheme::block];
  float amax = 0.0f;
  for (int i = 0; i < Scheme::block; ++i) {
    block[i] = std::cos(0.4f * i) / (1 + i);
    amax = std::fmax(amax, std::fabs(block[i]));
  }

  const mxkern::BlockScale scale =
      mxkern::block_scale<Scheme>(mxkern::bits_of(amax), mxkern::ScaleRule::rceil, {});
  std::uint8_t codes[Scheme::block], packed[Scheme::block_bytes], unpacked[Scheme::block];
  for (int i = 0; i < Scheme::block; ++i) {
    codes[i] = mxkern::encode<Format>(block[i] * scale.multiplier);
  }
  mxkern::pack<Format::bits>(codes, Scheme::block, packed);
  mxkern::unpack<Format::bits>(packed, Scheme::block, unpacked);

  const float step = Scheme::ScaleFormat::decode(scale.byte);
  float largest_error = 0.0f;
  for (int i = 0; i < Scheme::block; ++i) {
    const float error = std::fabs(mxkern::decode<Format>(unpacked[i]) * step - block[i]);
    largest_error = std::fmax(largest_error, error);
  }
  std::printf("%s: %d elements in %d bytes, scale %g, largest error %g\n", Scheme::name,
              Scheme::block, Scheme::block_bytes + 1, step, largest_error);
  return largest_error <= amax / 16 ? 0 : 1;
}
