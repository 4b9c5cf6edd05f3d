// tile_products.cc for machines without AMX.
#include "tests/kernels/emulated_tiles.h"

#define multiply_tiles emulated_multiply_tiles
#include "bench/tile_products.cc"
