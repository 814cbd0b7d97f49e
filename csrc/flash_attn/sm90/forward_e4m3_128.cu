#include "sm90/forward_launch.cuh"

FLASH_ATTN_FORWARD_E4M3(128)
