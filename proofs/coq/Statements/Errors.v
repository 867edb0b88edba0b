(** What errors do to scores, to means of sources and to gradients of batches, over any finite law.

    Where a page says independent, uncorrelated is enough, and is all that is assumed here. *)
From mathcomp Require Import all_ssreflect all_algebra.
From LAI.Statements Require Import Networks Laws.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Definition uncorrelated (R : numDomainType) (W : finType) (P : law R W) m (X : 'I_m -> W -> R) :=
  forall i k, i != k -> cov P (X i) (X k) = 0.

Section Parts.
Variables (R : fieldType) (W : Type) (m : nat) (size : 'I_m -> nat) (part : 'I_m -> W -> R).
(* What part i is off from its share of the score, and the estimate of one sample's variance. *)
Definition score w := \sum_i part i w.
Definition rest i w := part i w - (size i)%:R / (\sum_k size k)%:R * score w.
Definition spread w := (\sum_i rest i w ^+ 2 / (size i)%:R) / (m%:R - 1).
End Parts.

(** The variance of a score from its parts is unbiased, and what parts are off is uncorrelated with the
    score. *)
(* Implements: part-variance *)
Definition part_variance := forall (R : realFieldType) (W : finType) (P : law R W) m (size : 'I_m -> nat)
    (part : 'I_m -> W -> R) mu sigma,
  (* $m > 1$ *) (1 < m)%N ->
  (* meaning *) (forall i, (0 < size i)%N) ->
  (* the parts are independent *) uncorrelated P part ->
  (* part $i$ has a score of mean $n_i \mu$ and variance $n_i \sigma^2$ *)
  (forall i, mean P (part i) = (size i)%:R * mu /\ var P (part i) = (size i)%:R * sigma ^+ 2) ->
  mean P (spread size part) = sigma ^+ 2 /\ forall i, cov P (score part) (rest size part i) = 0.

(** The variance of one mean's difference from the mean over K sources. *)
(* Implements: contrast-variance *)
Definition contrast_variance := forall (R : realFieldType) (W : finType) (P : law R W) K
    (m : 'I_K -> W -> R) v k,
  (* the means are independent with variances $v_k$ *) uncorrelated P m /\ (forall i, var P (m i) = v i) ->
  var P (fun w => m k w - 1 / K%:R * \sum_i m i w) = (1 - 2%:R / K%:R) * v k + 1 / K%:R ^+ 2 * \sum_i v i.

(** The best factor for a contrast c that is observed with the error e: no factor does better, no other does
    as well. *)
(* Implements: contrast-shrinkage *)
Definition contrast_shrinkage := forall (R : realFieldType) (W : finType) (P : law R W) (c e : W -> R) t v,
  (* the true contrast has mean 0 and variance $t$ *) mean P c = 0 /\ var P c = t ->
  (* the error has mean 0 and variance $v > 0$ and is uncorrelated with it *)
  [/\ mean P e = 0, var P e = v, 0 < v & cov P c e = 0] ->
  let error x := mean P (fun w => (c w - x * (c w + e w)) ^+ 2) in
  forall x, t * v / (t + v) <= error x /\ (error x == t * v / (t + v)) = (x == t / (t + v)).

Section Cochran.
Variables (R : fieldType) (K : nat) (e m : 'I_K -> R).
(* Means m with standard deviations e: their precisions, their weighted mean, and Cochran's Q. *)
Definition precision k := 1 / e k ^+ 2.
Definition weighted_mean := (\sum_k precision k * m k) / \sum_k precision k.
Definition cochran := \sum_k precision k * (m k - weighted_mean) ^+ 2.
End Cochran.

(** Cochran's Q of K sources with one true mean is K - 1 on average.  Its law for normal means is left out. *)
(* Implements: cochran-q *)
Definition cochran_q := forall (R : realFieldType) (W : finType) (P : law R W) K (e : 'I_K -> R)
    (m : 'I_K -> W -> R) mu,
  (* meaning *) (0 < K)%N ->
  (* the means are independent with standard deviations $e_k > 0$ *)
  uncorrelated P m /\ (forall k, 0 < e k /\ var P (m k) = e k ^+ 2) ->
  (* their expectations are equal *) (forall k, mean P (m k) = mu) ->
  mean P (fun w => cochran e (fun k => m k w)) = K%:R - 1.

(** Norms of a batch's rows and of their sum tell noise from signal: g is the gradients of n rows of p
    entries. *)
(* Implements: gradient-noise *)
Definition gradient_noise := forall (R : realFieldType) (W : finType) (P : law R W) n p
    (g : 'I_n -> W -> 'cV[R]_p)
    (G : 'cV_p) (Sigma : 'M_p),
  (* the $g_j$ are uncorrelated, with one expectation $G$ and one covariance $\Sigma$ *)
  [/\ forall j k a b, j != k -> cov P (fun w => g j w a 0) (fun w => g k w b 0) = 0,
      forall j a, mean P (fun w => g j w a 0) = G a 0
    & forall j a b, cov P (fun w => g j w a 0) (fun w => g j w b 0) = Sigma a b] ->
  (* $n > 1$ *) (1 < n)%N ->
  let q w := \sum_j dot (g j w) (g j w) in
  let S w := \sum_j g j w in
  mean P (fun w => (q w - dot (S w) (S w) / n%:R) / (n%:R - 1)) = \tr Sigma /\
  mean P (fun w => (dot (S w) (S w) - q w) / (n%:R * (n%:R - 1))) = dot G G.

Section Pairs.
Variables (R : fieldType) (m : nat).
Definition average (x : 'I_m -> R) := (\sum_i x i) / m%:R.
Definition sample_cov (x y : 'I_m -> R) := (\sum_i (x i - average x) * (y i - average y)) / (m%:R - 1).
End Pairs.

Section Ends.
Variables (R : rcfType) (a b c : R).
Definition root := Num.sqrt (b ^+ 2 - a * c).
(* Where a rho^2 - 2 b rho + c is not positive: between the roots; on one side of a number, everywhere or
   nowhere; or outside of the roots, which is everywhere if there are none, as `root` is then 0. *)
Definition solved rho :=
  if 0 < a then (b - root) / a <= rho <= (b + root) / a
  else if a == 0 then c <= 2%:R * b * rho
  else (rho <= (b + root) / a) || ((b - root) / a <= rho).
(* The interval that `lai_core` gives of the ratios that are not negative: from 0 if that solves, else from
   the first root, or empty; to the last root if a > 0, else without an end. *)
Definition reported rho :=
  if 0 < c then [&& 0 < b + root, c / (b + root) <= rho & (0 < a) ==> (rho <= (b + root) / a)]
  else (0 < a) ==> (rho <= (b + root) / a).
End Ends.

(** The ratios rho for which the mean of x - rho y is at most t standard errors from 0 are those that solve a
    quadratic inequality; what they are in each case; and which of them are not negative. The interval that
    `lai_core` gives has those, and no others unless a and c are at most 0 and b is negative: then what lies
    between two pieces, or beyond the one piece, is in it too. This is algebra, for any number t: that the
    mean over its standard error has Student's law, and the probability that comes from it, is cited on the
    page. *)
(* Implements: fieller-interval *)
Definition fieller_interval := forall (R : rcfType) m (x y : 'I_m -> R) (t rho : R),
  (* meaning *) 0 <= t ->
  let off i := x i - rho * y i in
  let near := `|average off| <= t * Num.sqrt (sample_cov off off / m%:R) in
  let a := average y ^+ 2 - t ^+ 2 / m%:R * sample_cov y y in
  let b := average x * average y - t ^+ 2 / m%:R * sample_cov x y in
  let c := average x ^+ 2 - t ^+ 2 / m%:R * sample_cov x x in
  [/\ near = (a * rho ^+ 2 - 2%:R * b * rho + c <= 0), near = solved a b c rho, (0 < a) ==> (a * c <= b ^+ 2)
    & (* meaning *) 0 <= rho ->
      near = reported a b c rho && ([|| 0 < a, 0 < c | 0 <= b] || solved a b c rho)].

Section Discoveries.
Variables (R : realFieldType) (n : nat) (q : R) (p : 'I_n -> R).
(* The limit of k drops; the p-values within it. They are k or more where the k-th smallest is within it, so
   that the largest such k is how many are dropped. *)
Definition limit k := k%:R * q / (n%:R * \sum_(1 <= i < n.+1) 1 / i%:R).
Definition within k := [set j | p j <= limit k].
Definition drops := \max_(k < n.+1 | (k <= #|within k|)%N) k.
Definition dropped := within drops.
End Discoveries.

(** Dropping the samples with the smallest p-values, whatever the dependence between them: the mean share of
    those dropped that do no harm (Benjamini and Yekutieli). *)
(* Implements: false-discovery-rate *)
Definition false_discovery_rate := forall (R : realFieldType) (W : finType) (P : law R W) n
    (p : 'I_n -> W -> R)
    (harmless : {set 'I_n}) (q : R),
  (* meaning *) 0 < q ->
  (* the probability that $p_j \le x$ is at most $x$ for each of the $n_0$ samples that do no harm *)
  (forall j x, j \in harmless -> 0 <= x -> \sum_(w | p j w <= x) prob P w <= x) ->
  (forall w, #|dropped q (p^~ w)| = drops q (p^~ w)) /\
  mean P (fun w => #|dropped q (p^~ w) :&: harmless|%:R / (maxn #|dropped q (p^~ w)| 1)%:R)
  <= #|harmless|%:R / n%:R * q.
