#include "decode/decode_launch.cuh"

FLASH_ATTN_DECODE_SM80(64)
