import { touch } from '@ron/kernel/sched';
import type { Build } from '../src/index.ts';

/** A shared variable that announces itself, as kernel objects do. */
export class Variable {
  #value = 0;
  get value(): number {
    touch(this);
    return this.#value;
  }
  set value(next: number) {
    touch(this);
    this.#value = next;
  }
}

/** Tasks that each work on a variable of their own. */
export const independent =
  (tasks: number, steps: number): Build =>
  (world) => {
    const variables = Array.from({ length: tasks }, () => new Variable());
    // Announced before the tasks part, so that each knows the others' by name.
    for (const variable of variables) touch(variable);
    variables.forEach((variable, index) => {
      world.task(`task ${index}`, async () => {
        for (let step = 0; step < steps; step++) {
          variable.value++;
          await world.io('next');
        }
        variable.value++;
      });
    });
    return { state: () => variables.map(({ value }) => value).join() };
  };
