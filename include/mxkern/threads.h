// mxkern/threads.h: how many threads the operations on the CPU use.
#pragma once

#include "mxkern/core/platform.h"

namespace mxkern {

inline constexpr int most_threads = 4096;

// How many threads a call may use, the caller's own among them. The first of these that says
// something: set_num_threads; the environment variable MXKERN_NUM_THREADS; a CPU quota of the
// process's control groups, where it is below the number of processors; the number of processors
// that the process may run on. The environment and the system are asked by the first call that
// needs to know, once. Throws InvalidArgument where MXKERN_NUM_THREADS is no whole number from 1 to
// most_threads, as every operation on the CPU does then. An empty one says nothing.
MXKERN_API int num_threads();

// Sets it for the process, from 1 to most_threads; else throws InvalidArgument. Any thread may call
// this at any time, while other calls are under way too. The number changes no result.
// Products divide their work, and their working memory, for the number at the first product of the
// process: later ones may use fewer threads, never more.
MXKERN_API void set_num_threads(int n);

}  // namespace mxkern
