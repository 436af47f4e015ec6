// cuda/runtime/zero_words.h: sets words of working memory to zeros.
#pragma once

#include "cuda/operands/row_scaled.h"
#include "mxkern/core/buffer.h"

namespace mxkern::cuda {

// On the current device, for a kernel that is launched behind it. A copy of zeros would keep its
// thread blocks from getting ready meanwhile.
void zero_words(const char* function, const ZeroedWords& words, Stream stream);

// A kernel of no words that starts when all ahead of it in the stream is over, so that what starts
// early behind it does too.
void stand_between(const char* function, Stream stream);

}  // namespace mxkern::cuda
