#include "sm80/forward_launch.cuh"

FLASH_ATTN_MASKED_SM80(96)
