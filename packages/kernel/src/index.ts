export * from './errors.ts';
export * from './sched.ts';
