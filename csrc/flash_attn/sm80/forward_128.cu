#include "sm80/forward_launch.cuh"

FLASH_ATTN_FORWARD_SM80(128)
