// tests/support/cuda/prepared.h: an operand of a product made ready on a CUDA device.
#pragma once

#include "mxkern/prepare_operand.h"
#include "tests/support/cuda/memory.h"

namespace mxkern::test {

struct DevicePrepared {
  DevicePrepared(PreparedForm form, const BlockScaled& q)
      : bytes(prepared_bytes(form, q.scheme, q.shape)),
        operand{form, q, bytes.data(), prepared_bytes(form, q.scheme, q.shape)} {
    prepare_operand(q, operand);
  }

  DeviceBytes bytes;
  PreparedOperand operand;
};

}  // namespace mxkern::test
