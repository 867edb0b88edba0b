(** What ranking and selecting by an approximate score can cost. *)
From mathcomp Require Import all_ssreflect all_algebra.
From LAI.Statements Require Import Networks.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* Every Ghost score is that of LAI times a ratio between m and M. *)
Definition within (R : realFieldType) n (G A : 'rV[R]_n) m M :=
  forall k, exists2 r, m <= r <= M & G 0 k = r * A 0 k.

(** Selecting by v' > 0 in place of v > 0. *)
(* Implements: selection-regret *)
Definition selection_regret := forall (R : realFieldType) n (v v' : 'I_n -> R) lambda,
  (* meaning *) 0 <= lambda ->
  \sum_k Num.max (v k) 0 - \sum_(k | 0 < v' k) v k <= \sum_k `|v k - lambda * v' k|.

(** The regret that bounds on errors allow, and scores that reach it. *)
(* Implements: certified-regret *)
Definition certified_regret := forall (R : realFieldType) n (v v' e : 'I_n -> R),
  (* $|v_j - \hat v_j| \le \epsilon_j$ for every $j$ *) (forall k, `|v k - v' k| <= e k) ->
  \sum_k Num.max (v k) 0 - \sum_(k | 0 < v' k) v k <= \sum_k Num.max (e k - `|v' k|) 0 /\
  exists u : ('I_n -> R), (forall k, `|u k - v' k| <= e k) /\
    \sum_k Num.max (u k) 0 - \sum_(k | 0 < v' k) u k = \sum_k Num.max (e k - `|v' k|) 0.

(** When several validation samples leave the sign alone: a z are LAI's terms, r z a z are Ghost's. *)
(* Implements: sign-agreement *)
Definition sign_agreement := forall (R : realFieldType) n (a r : 'I_n -> R) m M,
  let P := \sum_z Num.max (a z) 0 in
  let N := \sum_z Num.max (- a z) 0 in
  (* every term's ratio lies in $[m, M]$ *) (forall z, m <= r z <= M) ->
  (* $m > 0$ *) 0 < m ->
  (* $N > 0$ *) 0 < N ->
  (* meaning *) M / m < P / N ->
  0 < \sum_z a z /\ 0 < \sum_z r z * a z.

(** Pairs that are certainly ranked alike. *)
(* Implements: concordance *)
Definition concordance := forall (R : realFieldType) n (G A : 'rV[R]_n) m M j k,
  (* $m \le \Ghost_j / \LAI_j \le M$ for every sample *) within G A m M ->
  (* $m > 0$ *) 0 < m ->
  (* both scores have one sign *) 0 < A 0 j * A 0 k ->
  (* meaning *) M / m <= `|A 0 j / A 0 k| ->
  `|G 0 k| <= `|G 0 j|.

(** Ratio bounds give a cosine. *)
(* Implements: rank-cosine *)
Definition rank_cosine := forall (R : rcfType) n (G A : 'rV[R]_n) m M,
  (* $m \le \Ghost_j / \LAI_j \le M$ for every sample *) within G A m M ->
  (* $m > 0$ *) 0 < m ->
  (* scores are not all zero *) A != 0 ->
  2%:R * Num.sqrt (m * M) / (m + M) <= cos G A.

(* Scores less their mean, the square of their coefficient of variation, and Pearson's correlation. *)
Definition mean (R : fieldType) n (v : 'rV[R]_n) := (\sum_k v 0 k) / n%:R.
Definition centred (R : fieldType) n (v : 'rV[R]_n) : 'rV_n := v - const_mx (mean v).
Definition squared_cv (R : fieldType) n (v : 'rV[R]_n) := dot (centred v) (centred v) / n%:R / mean v ^+ 2.
Definition pearson (R : rcfType) n (v w : 'rV[R]_n) := cos (centred v) (centred w).

(** With the spread of LAI's scores they give a correlation: tau / lambda is (M - m) / (m + M). *)
(* Implements: rank-pearson *)
Definition rank_pearson := forall (R : rcfType) n (G A : 'rV[R]_n) m M,
  let radicand := 1 - ((M - m) / (m + M)) ^+ 2 * (1 + (squared_cv A)^-1) in
  (* $m \le \Ghost_j / \LAI_j \le M$ for every sample *) within G A m M ->
  (* $m > 0$ *) 0 < m ->
  (* the radicand is positive *) 0 < radicand ->
  (* scores are not all equal *) centred A != 0 ->
  Num.sqrt radicand <= pearson G A.

(** Networks on which LAI and Ghost rank alike: one factor for all training samples. *)
(* Implements: identical-ranking *)
Definition identical_ranking := forall (R : realFieldType) d n N L (V : 'I_n -> trace R d) (B : 'I_N -> trace R d) c k,
  (* $\beta^{(l)} = c_l \beta^{(L)}$ for all pairs *)
  (forall z j l, (0 < l <= L)%N -> beta (V z) (B j) l = c l * beta (V z) (B j) L) ->
  (* $\alpha^{(l)} = k_l \alpha^{(1)}$ for all pairs *)
  (forall z j l, (0 < l <= L)%N -> alpha (V z) (B j) l = k l * alpha (V z) (B j) 1) ->
  (* $\sum_l k_l \ne 0$ *) (\sum_(1 <= l < L.+1) k l != 0) ->
  forall j, ghost L V (B j) = (\sum_(1 <= l < L.+1) k l * c l) / (\sum_(1 <= l < L.+1) k l) * lai L V (B j).

(** When a sample outvotes its batch, of which g are the gradients. *)
(* Implements: self-exclusion *)
Definition self_exclusion := forall (R : rcfType) p n (g : 'I_n -> 'cV[R]_p) j,
  (\sum_z dot (g z) (g j) < 0) = (\sum_(z | z != j) dot (g z) (g j) < - norm (g j) ^+ 2).

(* Widths 2, 1, 1. *)
Definition two_layers (l : nat) : nat := if l is 0%N then 2%N else 1%N.
(* A sample of the network W1 = (0, 1), W2 = rho, with input x and feedback 1. *)
Definition flips (R : ringType) (rho : R) (W : forall l, 'M_(two_layers l.+1, two_layers l)) x (s : trace R two_layers) :=
  [/\ W 0%N = \row_i (i != 0)%:R, W 1%N = rho%:M, linear_chain 2 W s, act s 0 = x & grad s 2 = 1%:M].
Definition pair (R : ringType) (x y : R) : 'cV_2 := \col_i (if i == 0 then x else y).

(** LAI can reverse a pair that Ghost, and LLI, rank right: j is (9, 1), k is (-2, 2), the validation sample (1, 1). *)
(* Implements: rank-flip *)
Definition rank_flip := forall (R : realFieldType) rho W (V : 'I_1 -> trace R two_layers) j k,
  (* $\rho \ge 0$ *) 0 <= rho ->
  (* the networks written above *)
  [/\ forall z, flips rho W (pair 1 1) (V z), flips rho W (pair 9%:R 1) j & flips rho W (pair (- 2%:R) 2%:R) k] ->
  [/\ ghost 2 V j = 10%:R * rho ^+ 2 + 1, ghost 2 V k = 2%:R, lai 2 V j = 11%:R, lai 2 V k = 2%:R
    & lli 2 V j = 1 /\ lli 2 V k = 2%:R].
