/**
 * What several sources yield, as it comes, with the index of the source. However the reader leaves, the
 * sources are closed.
 *
 * @param stop called first in the end, so that sources which are waited for come to theirs
 */
export async function* merge<T>(
  sources: readonly AsyncGenerator<T>[],
  stop: () => void,
): AsyncGenerator<readonly [index: number, value: T], void, undefined> {
  const ready: { readonly index: number; readonly result: Promise<IteratorResult<T>> }[] = [];
  let wake = () => {};
  const ask = (index: number) => {
    const result = sources[index]!.next();
    const settled = () => {
      ready.push({ index, result });
      wake();
    };
    result.then(settled, settled);
  };
  try {
    sources.forEach((_, index) => ask(index));
    for (let open = sources.length; open > 0;) {
      const first = ready.shift();
      if (first === undefined) {
        await new Promise<void>((resolve) => wake = resolve);
        continue;
      }
      const { done, value } = await first.result;
      if (done) {
        open--;
        continue;
      }
      yield [first.index, value];
      ask(first.index);
    }
  } finally {
    stop();
    await Promise.allSettled(sources.map((source) => source.return(undefined)));
  }
}
