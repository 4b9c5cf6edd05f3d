// Lowers the priority of threads that compute or that read long texts.
#pragma once

namespace runnel {

// Lowers the priority of the calling thread from here on, so that the other threads of the process,
// and other processes, run first if all processors are busy. For a thread that computes for
// milliseconds at a time: a thread that answers a message needs only microseconds. Only Linux has
// priorities of single threads, nice(2).
void compute_behind_others();

// Does the same, with a priority below that of threads that compute.
void read_behind_others();

}  // namespace runnel
