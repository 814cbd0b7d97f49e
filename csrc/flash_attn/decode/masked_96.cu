#include "decode/decode_launch.cuh"

FLASH_ATTN_DECODE_MASKED(96)
