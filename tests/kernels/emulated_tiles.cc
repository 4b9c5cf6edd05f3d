// isa_amx.cc compiled with tiles in software, for machines without AMX.
#include "tests/kernels/emulated_tiles.h"

#define amx_kernels emulated_amx_kernels
#include "kernels/cpu/isa_amx.cc"
