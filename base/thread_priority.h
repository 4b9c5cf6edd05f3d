// Lowers the priority of threads that compute or that read long texts.
#pragma once

namespace runnel {

// Lowers the priority of the calling thread from here on, so that the other threads of the process,
// and other processes, run first if all processors are busy. For threads that compute for
// milliseconds at a time, because threads that answer messages need only microseconds. Only Linux
// has per-thread priorities, nice(2).
void compute_behind_others();

// Does the same, with a priority below that of threads that compute.
void read_behind_others();

}  // namespace runnel
