-- sknimo 0.1.0.dev0
SELECT scored.*,
  EXP(eta) AS prediction
FROM (
  SELECT rows_in.*,
    0.0
    + 0.7312772432732552 * ("a" - -0.056322160804339744)
    + 0.042937075251610814 * ("b" - 0.03234821194506422)
    + -0.36783513031249687 * ("c" - -0.008066965136080172) AS eta
  FROM "data" AS rows_in
) AS scored;
