/** Gets an answer as a typed object that always conforms to a schema. */
import { load } from "../../src/mod.ts";

interface Character {
  readonly name: string;
  readonly animal: "fox" | "bear" | "owl";
  readonly age: number;
}

const schema = {
  type: "object",
  properties: {
    name: { type: "string", minLength: 1, maxLength: 12 },
    animal: { enum: ["fox", "bear", "owl"] },
    age: { type: "integer", minimum: 1, maximum: 20 },
  },
  required: ["name", "animal", "age"],
  additionalProperties: false,
};

const demo = `${import.meta.dirname}/../../models/demo`;
await using model = await load(demo);

const { text } = await model.complete("Invent an animal.", { jsonSchema: schema, seed: 1 });
const character: Character = JSON.parse(text);
console.log(`${character.name} the ${character.animal} is ${character.age} years old`);
