// mxkern/mxkern.h: the whole library, in reading order.
#pragma once

#include "mxkern/core/platform.h"
#include "mxkern/core/math.h"
#include "mxkern/core/error.h"
#include "mxkern/core/dtype.h"
#include "mxkern/core/device.h"
#include "mxkern/core/buffer.h"
#include "mxkern/core/philox.h"

#include "mxkern/numerics/format.h"
#include "mxkern/numerics/codec.h"
#include "mxkern/numerics/rounding.h"
#include "mxkern/numerics/scale_format.h"
#include "mxkern/numerics/scale_rule.h"
#include "mxkern/numerics/tensor_scale.h"
#include "mxkern/numerics/hadamard.h"
#include "mxkern/numerics/scheme.h"
#include "mxkern/numerics/visit.h"
#include "mxkern/numerics/block_scale.h"
#include "mxkern/numerics/fold.h"

#include "mxkern/tensor/packing.h"
#include "mxkern/tensor/scale_layout.h"
#include "mxkern/tensor/block_scaled.h"

#include "mxkern/info.h"
#include "mxkern/hadamard.h"
#include "mxkern/quantize.h"
#include "mxkern/dequantize.h"
#include "mxkern/scales.h"
#include "mxkern/gemm.h"
