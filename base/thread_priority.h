// The priority of threads that compute, and of threads that read long texts.
#pragma once

namespace runnel {

// Where processors are short, lets the other threads of the process go before the calling one from
// here on, and other processes as well. For a thread that computes for milliseconds at a time: one
// that has a message to answer needs microseconds. Linux alone knows priorities of threads,
// nice(2).
void compute_behind_others();

// The same, with a priority below that of threads that compute.
void read_behind_others();

}  // namespace runnel
