/** How an answer is given, for every endpoint that generates. */
export interface AnswerWork {
  /** The stream of it, where one is asked for. @param cancelled to be called when its reader leaves */
  readonly stream: ((cancelled: () => void) => Response) | undefined;
  /** All of it at once. */
  readonly whole: () => Promise<Response>;
}

/**
 * Gives an answer, whose generations end when the client leaves.
 *
 * @param controller ends the generations
 * @param leave called when they have ended, maybe more than once
 */
export async function runAnswer(
  { signal }: Request,
  controller: AbortController,
  leave: () => void,
  { stream, whole }: AnswerWork,
): Promise<Response> {
  const stop = () => controller.abort();
  if (stream !== undefined) {
    return stream(() => {
      stop();
      // Where nothing was read, the generations never began.
      leave();
    });
  }
  if (signal.aborted) stop();
  signal.addEventListener("abort", stop);
  try {
    return await whole();
  } finally {
    signal.removeEventListener("abort", stop);
    leave();
  }
}
