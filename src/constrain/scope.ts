import { ForgeError } from "../errors.ts";

/** Where in an answer a constraint holds: behind a token, before which the text is free. */
export interface ConstraintScope {
  /** The token behind which it holds. */
  readonly after: number;
  /**
   * The token that makes the answer free where it begins with it, as one that begins a model's thoughts;
   * an answer that does not is constrained from its beginning. Without it every answer begins free.
   */
  readonly opener?: number | undefined;
  /** Texts, one of which stands between the token and what conforms. @default only none */
  readonly before?: readonly string[] | undefined;
  /** Texts, one of which stands behind what conforms. @default only none */
  readonly behind?: readonly string[] | undefined;
  /** Whether the answer may end where it is free. @default false, it has to come to what conforms */
  readonly isOptional?: boolean | undefined;
  /** Whether it is free again behind what conforms, rather than at its end. @default false */
  readonly repeats?: boolean | undefined;
}

/** @throws {ForgeError} `usage` for a token that the model does not have */
export function checkScope({ after, opener = 0 }: ConstraintScope, vocabSize: number): void {
  for (const [name, id] of Object.entries({ after, opener })) {
    if (Number.isInteger(id) && id >= 0 && id < vocabSize) continue;
    throw new ForgeError(
      "usage",
      `constraintScope.${name} is ${id}; valid ids are 0 to ${vocabSize - 1}`,
    );
  }
}
