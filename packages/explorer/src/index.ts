export * from './assert.ts';
export { assertReductionsAgree, endings } from './reduce/cross-check.ts';
export { explore, replay } from './explore.ts';
export * from './model.ts';
export * from './mutant.ts';
