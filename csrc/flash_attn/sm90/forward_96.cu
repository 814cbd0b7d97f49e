#include "sm90/forward_launch.cuh"

FLASH_ATTN_FORWARD_SM90(96)
